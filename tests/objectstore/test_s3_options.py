import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.s3_options import MIB, ONE_PUT_BYTES_MAX, S3Options


def refusal(uri: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        S3Options.parse(uri)
    assert caught.value.code is ErrorCode.INVALID_OPTION
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestPlace:
    @pytest.mark.parametrize(
        ("uri", "bucket", "prefix"),
        [
            ("s3://bucket", "bucket", ""),
            ("s3://bucket/", "bucket", ""),
            ("s3://bucket/a/b/", "bucket", "a/b"),
            ("s3://my.bucket-1/a%20b", "my.bucket-1", "a b"),
        ],
    )
    def test_bucket_and_prefix(self, uri, bucket, prefix):
        options = S3Options.parse(uri)
        assert (options.bucket, options.prefix) == (bucket, prefix)

    @pytest.mark.parametrize("uri", ["s3://", "s3:///x", "s3://b", "s3://bucket:80/x", "s3://a b"])
    def test_a_bucket_needs_a_name(self, uri):
        assert "s3://bucket/prefix" in refusal(uri)

    @pytest.mark.parametrize("uri", ["s3://bucket/a//b", "s3://bucket/../a", "s3://bucket/a/./b"])
    def test_a_prefix_has_no_empty_part_and_no_dots(self, uri):
        assert "prefix: no empty part" in refusal(uri)

    def test_a_fragment_is_not_ignored(self):
        refusal("s3://bucket/prefix#2")


class TestParameters:
    def test_all_of_them(self):
        options = S3Options.parse(
            "s3://bucket/p?endpoint_url=https://s3.example:9000/&region=r&profile=p"
            "&addressing_style=virtual&expected_bucket_owner=1234&request_payer=requester"
            "&checksums=when_required&sse=aws:kms&sse_kms_key_id=arn:aws:kms:r:1:key/k"
            "&bucket_key=true&storage_class=STANDARD_IA&acl=bucket-owner-full-control"
            "&part_size=5MiB&multipart_threshold=1GiB&parallel=3&retry_budget_ms=0"
            "&connect_timeout_ms=10&read_timeout_ms=20"
        )
        assert options.endpoint_url == "https://s3.example:9000"
        assert options.sse_kms_key_id == "arn:aws:kms:r:1:key/k"
        assert options.bucket_key is True
        assert (options.part_size, options.multipart_threshold) == (5 * MIB, 1024 * MIB)
        assert (options.parallel, options.retry_budget_ms) == (3, 0)

    def test_what_is_not_said_is_left_to_boto3_and_to_the_bucket(self):
        options = S3Options.parse("s3://bucket")
        left = ("endpoint_url", "region", "profile", "checksums", "sse", "storage_class", "acl")
        assert [getattr(options, name) for name in left] == [None] * len(left)

    @pytest.mark.parametrize(
        ("query", "said"),
        [
            ("regoin=x", "'regoin' is not a parameter; there are: endpoint_url, region,"),
            ("region=a&region=b", "given once"),
            ("bucket=other", "'bucket' is not a parameter"),
            ("part_size=1MiB", "part_size: Input should be greater than or equal to 5242880"),
            ("part_size=big", "part_size: "),
            ("parallel=0", "parallel: "),
            ("addressing_style=auto-detect", "addressing_style: "),
            ("sse=aes", "sse: "),
            ("sse_kms_key_id=k", "needs sse=aws:kms"),
            ("storage_class=GLACIER", "storage_class: what is archived cannot be read back"),
            ("endpoint_url=localhost:9000", "endpoint_url: it must look like https://host:port"),
            ("endpoint_url=ftp://host", "endpoint_url: it must look like"),
            ("endpoint_url", "write for example"),
        ],
    )
    def test_a_mistake_is_named(self, query, said):
        assert said in refusal(f"s3://bucket?{query}")

    def test_the_largest_threshold_means_no_upload_in_parts(self):
        assert not S3Options.parse("s3://bucket?multipart_threshold=5GiB").uploads_in_parts
        below = f"s3://bucket?multipart_threshold={ONE_PUT_BYTES_MAX - 1}"
        assert S3Options.parse(below).uploads_in_parts


class TestSecrets:
    @pytest.mark.parametrize(
        "uri",
        [
            "s3://AKIASECRET:hunter2@bucket/prefix",
            "s3://hunter2@bucket",
            "s3://bucket?aws_secret_access_key=hunter2",
            "s3://bucket?aws_access_key_id=hunter2",
            "s3://bucket?session_token=hunter2",
            "s3://bucket?password=hunter2",
            "s3://bucket?sse_c_key=hunter2",
            "s3://bucket?sse_customer_key=hunter2",
            "s3://bucket?endpoint_url=https://me:hunter2@host",
            "s3://bucket?region=a&region=hunter2",
        ],
    )
    def test_a_secret_is_refused_and_not_repeated(self, uri):
        assert "hunter2" not in refusal(uri)

    def test_the_advice_is_where_secrets_belong(self):
        assert "profile of ~/.aws" in refusal("s3://bucket?secret_access_key=x")
        assert "SSE-C" in refusal("s3://bucket?sse_customer_key=x")


class TestUri:
    @pytest.mark.parametrize(
        ("written", "short"),
        [
            ("s3://bucket/", "s3://bucket"),
            ("s3://bucket/a%20b/", "s3://bucket/a%20b"),
            ("s3://bucket?region=x&part_size=8MiB", "s3://bucket?region=x"),
            (
                "s3://bucket/p?bucket_key=True&endpoint_url=http://h:1",
                "s3://bucket/p?endpoint_url=http://h:1&bucket_key=true",
            ),
        ],
    )
    def test_it_is_the_shortest_that_says_the_same(self, written, short):
        assert S3Options.parse(written).uri == short

    @given(
        st.fixed_dictionaries(
            {},
            optional={
                "region": st.text(min_size=1),
                "profile": st.text("a b&=%?#é/+", min_size=1),
                "bucket_key": st.booleans().map(str),
                "sse": st.sampled_from(["AES256", "aws:kms"]),
                "acl": st.text(),
                "parallel": st.integers(1, 64).map(str),
                "part_size": st.integers(5 * MIB, 9 * MIB).map(str),
            },
        ),
        st.text("ab /%?+é-", min_size=1).filter(
            lambda prefix: all(part for part in prefix.strip("/").split("/"))
        ),
    )
    def test_opened_again_it_means_the_same(self, given_parameters, prefix):
        options = S3Options.model_validate(
            {"bucket": "bucket", "prefix": prefix, **given_parameters}
        )
        assert S3Options.parse(options.uri) == options
        assert S3Options.parse(options.uri).uri == options.uri
