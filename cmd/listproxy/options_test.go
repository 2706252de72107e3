package main

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
)

func parse(args ...string) (*options, error) {
	o := defaultOptions()
	fs := pflag.NewFlagSet("listproxy", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	return o, o.Validate()
}

func eager(group, version, resource string, representation media.Representation) proxy.EagerCollection {
	return proxy.EagerCollection{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, Representation: representation,
	}
}

func TestOptions(t *testing.T) {
	o, err := parse("--cache-bytes", "512Mi", "--eager", "pods,deployments.v1.apps", "--eager", "widgets.v1beta1.example.com")
	expect.NoError(t, err)
	if o.cache.byteBound != 512<<20 {
		t.Errorf("--cache-bytes 512Mi is %d", o.cache.byteBound)
	}
	want := []proxy.EagerCollection{
		eager("", "v1", "pods", media.JSON), eager("apps", "v1", "deployments", media.JSON), eager("example.com", "v1beta1", "widgets", media.JSON),
	}
	if diff := cmp.Diff(want, o.cache.eagerly); diff != "" {
		t.Errorf("--eager (-want +got):\n%s", diff)
	}
}

func TestTLSOptions(t *testing.T) {
	for text, want := range map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13} {
		if o, err := parse("--tls-min-version", text); err != nil || o.serving.minVersion != want {
			t.Errorf("%s: %x, %v", text, o.serving.minVersion, err)
		}
	}
}

// TestNamesOfMadeCertificate: it is for the one address to serve on.
func TestNamesOfMadeCertificate(t *testing.T) {
	for address, want := range map[string][]string{
		"0.0.0.0": {"api.example.com"}, "::": {"api.example.com"},
		"10.1.2.3": {"api.example.com", "10.1.2.3"}, "fd00::1": {"api.example.com", "fd00::1"},
	} {
		o, err := parse("--bind-address", address)
		expect.NoError(t, err)
		expect.Same(t, want, o.serving.namesOfMade([]string{"api.example.com"}))
	}
}

// TestWrongOptions: each names its flag and says what would be right.
func TestWrongOptions(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"--shutdown-delay-duration", "-1s"}, []string{"--shutdown-delay-duration", "too short"}},
		{[]string{"--goaway-chance", "0.03"}, []string{"--goaway-chance 0.03", "from 0 (never) to 0.02"}},
		{[]string{"--goaway-chance=-0.01"}, []string{"--goaway-chance -0.01"}},
		{[]string{"--goaway-chance", "NaN"}, []string{"--goaway-chance NaN"}},
		{[]string{"--tls-cert-file", "x"}, []string{"--tls-private-key-file", "both or none"}},
		{[]string{"--tls-private-key-file", "x"}, []string{"--tls-cert-file", "both or none"}},
		{[]string{"--tls-min-version", "VersionTLS11"}, []string{"--tls-min-version", "VersionTLS12 or VersionTLS13"}},
		{[]string{"--tls-min-version", "1.3"}, []string{"--tls-min-version", "VersionTLS12 or VersionTLS13"}},
		{[]string{"--connect-port", "-2"}, []string{"--connect-port -2", "-1 opens none"}},
		{[]string{"--connect-port", "8443"}, []string{"--connect-port 8443", "--secure-port"}},
		{[]string{"--connect-hosts", "a"}, []string{"--connect-hosts", "give --connect-port"}},
		{[]string{"--connect-port", "0", "--connect-hosts", "https://a"}, []string{"--connect-hosts", `"https://a"`, "host:port"}},
		{[]string{"--secure-port", "70000"}, []string{"--secure-port 70000", "65535"}},
		{[]string{"--secure-port", "https"}, []string{"--secure-port"}},
		{[]string{"--bind-address", "localhost"}, []string{"--bind-address", "not an IP address"}},
		{[]string{"--admin-bind-address", "8081"}, []string{"--admin-bind-address", "address:port"}},
		{[]string{"--history-window", "0s"}, []string{"--history-window 0s", "at least 1s"}},
		{[]string{"--staleness-bound", "1s"}, []string{"--staleness-bound 1s", "at least"}},
		{[]string{"--consistent-lists=maybe"}, []string{`--consistent-lists "maybe"`, "true, always or false"}},
		{[]string{"--consistent-lists="}, []string{`--consistent-lists ""`, "true, always or false"}},
		{[]string{"--review-ttl", "-1s"}, []string{"--review-ttl -1s"}},
		{[]string{"--cache-bytes", "much"}, []string{"--cache-bytes", "512Mi"}},
		{[]string{"--cache-bytes", "-1"}, []string{"--cache-bytes", "512Mi"}},
		{[]string{"--eager", "pods.v1"}, []string{"--eager", "pods.v1", "deployments.v1.apps"}},
		{[]string{"--eager", "secrets"}, []string{"--eager", "secrets", "never"}},
		{[]string{"--log-level", "loud"}, []string{"--log-level", "debug, access, info, warn or error"}},
		{[]string{"--log-format", "xml"}, []string{"--log-format", "text or json"}},
		{[]string{"--cert-host", "x"}, []string{"unknown flag"}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			_, err := parse(tt.args...)
			clitest.Refused(t, err, tt.says...)
		})
	}
}

// TestWrongIdentityLimitAndAuditOptions: each value that cannot be meant stops the start, and the
// message names its flag and says what would be right.
func TestWrongIdentityLimitAndAuditOptions(t *testing.T) {
	noPEM := filepath.Join(t.TempDir(), "no.pem")
	expect.NoError(t, os.WriteFile(noPEM, []byte("not a certificate"), 0o600))
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"--client-ca-file", missing}, []string{"--client-ca-file", missing, "PEM"}},
		{[]string{"--client-ca-file", noPEM}, []string{"--client-ca-file", noPEM, "PEM"}},

		{[]string{"--max-requests-inflight", "-1"}, []string{"--max-requests-inflight -1", "0 for no bound"}},
		{[]string{"--max-requests-inflight", "9223372036854775807"}, []string{"--max-requests-inflight", "0 for no bound"}},
		{[]string{"--max-requests-inflight", "many"}, []string{"--max-requests-inflight"}},
		{[]string{"--max-long-running-requests", "-1"}, []string{"--max-long-running-requests -1", "0 for no bound"}},
		{[]string{"--max-inflight-bytes", "much"}, []string{"--max-inflight-bytes", "512Mi"}},
		{[]string{"--max-inflight-bytes", "-1"}, []string{"--max-inflight-bytes", "512Mi"}},
		{[]string{"--self-check-interval", "-1s"}, []string{"--self-check-interval -1s", "at least 1s"}},
		{[]string{"--self-check-interval", "10ms"}, []string{"--self-check-interval 10ms", "or 0"}},

		{[]string{"--audit-log-path", "x", "--audit-log-maxsize", "-1"}, []string{"--audit-log-maxsize=-1", "negative"}},
		{[]string{"--audit-log-path", "x", "--audit-log-maxbackup", "-1"}, []string{"--audit-log-maxbackup=-1", "negative"}},
		{[]string{"--audit-log-maxsize", "1"}, []string{"--audit-log-maxsize=1", "--audit-log-path"}},
		{[]string{"--audit-log-maxbackup", "1"}, []string{"--audit-log-maxbackup=1", "--audit-log-path"}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			_, err := parse(tt.args...)
			clitest.Refused(t, err, tt.says...)
		})
	}
}

// TestIdentityLimitAndAuditOptions: what the flags mean.
func TestIdentityLimitAndAuditOptions(t *testing.T) {
	ca, _, err := serve.SelfSigned(t.TempDir(), nil)
	expect.NoError(t, err)
	o, err := parse("--client-ca-file", ca,
		"--max-inflight-bytes", "64Mi", "--audit-log-path", "-")
	expect.NoError(t, err)
	if o.callers.clientCA == nil {
		t.Error("no CA of clients")
	}
	if _, err := o.callers.authenticator(); err != nil {
		t.Error(err)
	}
	if o.limits.answerBytes != 64<<20 {
		t.Errorf("limits: %+v", o.limits)
	}
	if !o.audit.config.Enabled() {
		t.Error("no audit log")
	}
}

// TestConfigAndEager: what is eager is in the order and the forms in which it is named, and what the
// policy leaves out is an error.
func TestConfigAndEager(t *testing.T) {
	config := clitest.PolicyFile(t, `resources:
- {group: '', resource: pods, historyWindow: 1m}
- {group: '', resource: nodes, cache: never}
`)
	o, err := parse("--config", config, "--eager", "pods/protobuf,pods", "--eager", "deployments.v1.apps/metadata-json")
	expect.NoError(t, err)
	want := []proxy.EagerCollection{
		eager("", "v1", "pods", media.Protobuf), eager("", "v1", "pods", media.JSON), eager("apps", "v1", "deployments", media.MetadataJSON),
	}
	if diff := cmp.Diff(want, o.cache.eagerly); diff != "" {
		t.Errorf("eager (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		args []string
		says []string
	}{
		{[]string{"--config", config, "--eager", "nodes"}, []string{"--eager", `"nodes" is never kept`, config + ": resources[1]"}},
		{[]string{"--eager", "pods/yaml"}, []string{"--eager", `"pods/yaml"`, "choose among [json protobuf"}},
		{[]string{"--eager", "pods,pods/json"}, []string{"--eager", `"pods/json" is named twice`}},
		{[]string{"--eager", "/json"}, []string{"--eager", "names no resource"}},
		{[]string{"--config", config + ".not"}, []string{"--config", "no such file"}},
		{[]string{"--config", clitest.PolicyFile(t, "x: y\n")}, []string{"--config", `policy.yaml: unknown field "x"`}},
		{[]string{"--config", clitest.PolicyFile(t, "defaults: {maxBytes: 1Gi}\n")}, []string{"--config", "policy.yaml: defaults.maxBytes is no longer there"}},
	} {
		_, err := parse(test.args...)
		clitest.Refused(t, err, test.says...)
	}
}

// TestMistakesAreMet: what people write by mistake is refused, with what they probably meant.
func TestMistakesAreMet(t *testing.T) {
	wrong := clitest.PolicyFile(t, "resources:\n- {group: '', resource: pod}\n- {group: apps, resource: deployment, cache: never}\n")
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"--eager", "pod"}, []string{"--eager", `"pod" is not a plural name: write "pods"`}},
		{[]string{"--eager", "deployment.v1.apps"}, []string{"--eager", `write "deployments"`}},
		{[]string{"--config", wrong}, []string{"--config", wrong + `: resources[0]: resource: "pod" is not a plural name: write "pods"`, wrong + ": resources[1]", `write "deployments"`}},
		{[]string{"--cache-bytes", "512"}, []string{`--cache-bytes "512" is 512 bytes`, "did you mean 512Mi?"}},
		{[]string{"--cache-bytes", "32Ki"}, []string{`--cache-bytes "32Ki" is 32768 bytes`, "at least 64Ki"}},
		{[]string{"--max-inflight-bytes", "128"}, []string{"--max-inflight-bytes", "did you mean 128Mi?"}},
		{[]string{"--bind-address", "127.0.0.1:9443"}, []string{`--bind-address "127.0.0.1:9443" has a port`, "--bind-address 127.0.0.1 --secure-port 9443"}},
		{[]string{"--bind-address", "localhost"}, []string{"not an IP address", "--secure-port"}},
	} {
		_, err := parse(tt.args...)
		clitest.Refused(t, err, tt.says...)
	}
	for args, words := range map[string]string{
		"--nothing-like-it x":   "unknown flag: --nothing-like-it",
		"stauts":                `unknown command "stauts"`,
		"serve":                 `unknown command "serve"`,
		"analyze":               "listproxy analyze FILE...",
		"analyze /nope":         "/nope: no such file",
		"policy check":          "accepts 1 arg(s)",
		"policy check " + wrong: `write "pods"`,
	} {
		code, out, err := execute(t, strings.Fields(args)...)
		if err == nil || code == 0 || out != "" || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %d, %q, %v, want %q", args, code, out, err, words)
		}
	}
	t.Setenv("KUBECONFIG", "/nope")
	for _, command := range []string{"try", "kubeconfig"} {
		if _, _, err := execute(t, strings.Fields(command)...); err == nil || !strings.Contains(err.Error(), `KUBECONFIG is "/nope"`) {
			t.Errorf("%s: %v", command, err)
		}
	}
	if got := telemetry.UserAgent(userAgent("listproxy-try")); got == telemetry.Masked {
		t.Error("the access log hides who listproxy try is")
	}
}

// TestNamesThatAreRight: what Kubernetes has, and what it may have, is accepted.
func TestNamesThatAreRight(t *testing.T) {
	for _, name := range []string{
		"pods", "endpoints", "nodes", "networkpolicies.v1.networking.k8s.io", "ingresses.v1.networking.k8s.io", "csinodes.v1.storage.k8s.io",
		"widget.v1.example.com", "gateways.v1.networking.k8s.io", "customresourcedefinitions.v1.apiextensions.k8s.io",
		"resourceslices.v9.batch", "storageclasses.v1.storage.k8s.io", "priorityclasses.v1.scheduling.k8s.io",
	} {
		if _, err := parse("--eager", name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
