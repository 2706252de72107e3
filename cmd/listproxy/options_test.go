package main

import (
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
)

func parse(args ...string) (*options, error) {
	o := defaultOptions()
	fs := pflag.NewFlagSet("listproxy", pflag.ContinueOnError)
	o.addFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	return o, o.complete()
}

func TestOptions(t *testing.T) {
	o, err := parse("--cache-bytes", "512Mi", "--eager", "pods,deployments.v1.apps", "--eager", "widgets.v1beta1.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if o.byteBound != 512<<20 {
		t.Errorf("--cache-bytes 512Mi is %d", o.byteBound)
	}
	want := []policy.EagerCollection{
		{Version: "v1", Resource: "pods", Representation: media.JSON},
		{Group: "apps", Version: "v1", Resource: "deployments", Representation: media.JSON},
		{Group: "example.com", Version: "v1beta1", Resource: "widgets", Representation: media.JSON},
	}
	if diff := cmp.Diff(want, o.eagerly); diff != "" {
		t.Errorf("--eager (-want +got):\n%s", diff)
	}
}

func TestTLSOptions(t *testing.T) {
	o, err := parse("--tls-min-version", "VersionTLS13", "--tls-cipher-suites", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
	if err != nil {
		t.Fatal(err)
	}
	if o.tls.MinVersion != tls.VersionTLS13 || len(o.tls.CipherSuites) != 1 {
		t.Errorf("got %+v", o.tls)
	}
	if o, err = parse("--tls-cipher-suites", "TLS_RSA_WITH_3DES_EDE_CBC_SHA,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"); err != nil {
		t.Fatal(err)
	}
	if o.tls.MinVersion != tls.VersionTLS12 || len(o.tls.CipherSuites) != 2 {
		t.Errorf("got %+v", o.tls)
	}
	var log strings.Builder
	o.warnOfTLS(slog.New(slog.NewTextHandler(&log, nil)))
	if s := log.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "TLS_RSA_WITH_3DES_EDE_CBC_SHA") {
		t.Errorf("the warning of an insecure suite: %q", s)
	}
}

// TestWrongOptions: each names its flag and says what would be right.
func TestWrongOptions(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"--upstream", "http://10.0.0.1:6443"}, []string{"--upstream", "not https", "https://host:port"}},
		{[]string{"--upstream", "https://10.0.0.1:6443", "--upstream", "https://10.0.0.1:6443"}, []string{"--upstream", "twice"}},
		{[]string{"--shutdown-delay-duration", "-1s"}, []string{"--shutdown-delay-duration", "too short"}},
		{[]string{"--tls-cert-file", "x"}, []string{"--tls-private-key-file", "both or none"}},
		{[]string{"--tls-private-key-file", "x"}, []string{"--tls-cert-file", "both or none"}},
		{[]string{"--tls-min-version", "VersionTLS11"}, []string{"--tls-min-version", "VersionTLS12 or VersionTLS13"}},
		{[]string{"--tls-min-version", "1.3"}, []string{"--tls-min-version", "VersionTLS12 or VersionTLS13"}},
		{[]string{"--tls-cipher-suites", "TLS_NULL"}, []string{"--tls-cipher-suites", "TLS_NULL", "choose among TLS_"}},
		{[]string{"--tls-cipher-suites", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}, []string{"--tls-cipher-suites", "HTTP/2", "add TLS_ECDHE"}},
		{[]string{"--connect-port", "-2"}, []string{"--connect-port -2", "-1 opens none"}},
		{[]string{"--connect-port", "8443"}, []string{"--connect-port 8443", "--secure-port"}},
		{[]string{"--connect-plain-http"}, []string{"--connect-plain-http", "give --connect-port"}},
		{[]string{"--connect-hosts", "a"}, []string{"--connect-hosts", "give --connect-port"}},
		{[]string{"--connect-ca-file", "a", "--connect-ca-key-file", "b"}, []string{"--connect-ca-file", "give --connect-port"}},
		{[]string{"--connect-port", "0", "--connect-ca-file", "a"}, []string{"--connect-ca-key-file", "both or none"}},
		{[]string{"--connect-port", "0", "--connect-ca-key-file", "a"}, []string{"--connect-ca-file", "both or none"}},
		{[]string{"--connect-port", "0", "--connect-hosts", "https://a"}, []string{"--connect-hosts", `"https://a"`, "host:port"}},
		{[]string{"--secure-port", "70000"}, []string{"--secure-port 70000", "65535"}},
		{[]string{"--secure-port", "https"}, []string{"--secure-port"}},
		{[]string{"--bind-address", "localhost"}, []string{"--bind-address", "not an IP address"}},
		{[]string{"--admin-bind-address", "8081"}, []string{"--admin-bind-address", "address:port"}},
		{[]string{"--history-window", "0s"}, []string{"--history-window 0s", "at least 1s"}},
		{[]string{"--staleness-bound", "1s"}, []string{"--staleness-bound 1s", "at least"}},
		{[]string{"--fresh-wait", "-1s"}, []string{"--fresh-wait -1s"}},
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
			if err == nil {
				t.Fatal("accepted")
			}
			for _, word := range tt.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
		})
	}
}
