#!/bin/sh
# Starts what Spark asks for in a pod: `executor` and `driver` are words of its protocol, which it
# explains by environment variables. Anything else is a command.
set -eu

SPARK_HOME=${SPARK_HOME:-$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')}
export SPARK_HOME
JAVA=${JAVA_HOME:+$JAVA_HOME/bin/}java

java_options() { # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on, one a line
  env | sed -n 's/^SPARK_JAVA_OPT_\([0-9][0-9]*\)=/\1 /p' | sort -n | sed 's/^[0-9]* //'
}

case "${1:-}" in
executor)
  shift
  set -- -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME" "$@"
  options=$(java_options)
  # An option may contain spaces, so lines are what separates them; none may be a pattern.
  set -f
  IFS='
'
  # shellcheck disable=SC2086
  exec "$JAVA" $options "$@"
  ;;
driver)
  shift
  exec "$SPARK_HOME/bin/spark-submit" \
    --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
  ;;
*)
  exec "$@"
  ;;
esac
