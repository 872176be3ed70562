import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Executes each line of its input as SQL, and says "done" when the job of the line has ended. */
public final class FlinkSql {
    public static void main(String[] words) throws Exception {
        TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.startsWith("SET ")) {
                String[] setting = line.substring("SET ".length()).split("=", 2);
                tables.getConfig().set(setting[0], setting[1]);
            } else {
                tables.executeSql(line).await();
            }
            System.out.println("done");
        }
    }
}
