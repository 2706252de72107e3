package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/proxy/certs"
)

// newCA writes a CA's certificate and returns its path.
func newCA(t *testing.T) string {
	t.Helper()
	_, path, err := certs.LoadOrCreate("", "", t.TempDir(), nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWrongIdentityLimitAndAuditOptions: each value that cannot be meant stops the start, and the
// message names its flag and says what would be right.
func TestWrongIdentityLimitAndAuditOptions(t *testing.T) {
	ca := newCA(t)
	noPEM := filepath.Join(t.TempDir(), "no.pem")
	if err := os.WriteFile(noPEM, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"--client-ca-file", missing}, []string{"--client-ca-file", missing, "PEM"}},
		{[]string{"--client-ca-file", noPEM}, []string{"--client-ca-file", noPEM, "PEM"}},
		{[]string{"--requestheader-client-ca-file", ca}, []string{"--requestheader-client-ca-file", "--requestheader-allowed-names"}},
		{[]string{"--requestheader-client-ca-file", missing, "--requestheader-allowed-names", "front"}, []string{"--requestheader-client-ca-file", missing, "PEM"}},
		{[]string{"--requestheader-client-ca-file", noPEM, "--requestheader-allowed-names", "front"}, []string{"--requestheader-client-ca-file", noPEM, "PEM"}},
		{[]string{"--requestheader-client-ca-file", ca, "--requestheader-allowed-names", "front, "}, []string{"--requestheader-allowed-names", "empty"}},
		{[]string{"--requestheader-client-ca-file", ca, "--requestheader-allowed-names", ""}, []string{"--requestheader-allowed-names"}},
		{[]string{"--requestheader-allowed-names", "front"}, []string{"--requestheader-allowed-names", "--requestheader-client-ca-file", "both or none"}},
		{[]string{"--requestheader-username-headers", "X-Remote-User"}, []string{"--requestheader-username-headers", "--requestheader-client-ca-file", "both or none"}},
		{[]string{"--requestheader-uid-headers", "X-Uid"}, []string{"--requestheader-uid-headers", "--requestheader-client-ca-file", "both or none"}},
		{[]string{"--requestheader-group-headers", "X-Group"}, []string{"--requestheader-group-headers", "--requestheader-client-ca-file", "both or none"}},
		{[]string{"--requestheader-extra-headers-prefix", "X-Extra-"}, []string{"--requestheader-extra-headers-prefix", "--requestheader-client-ca-file", "both or none"}},
		{[]string{"--requestheader-client-ca-file", ca, "--requestheader-allowed-names", "front", "--requestheader-username-headers", ""}, []string{"--requestheader-username-headers", "empty"}},

		{[]string{"--max-requests-inflight", "-1"}, []string{"--max-requests-inflight -1", "0 for no bound"}},
		{[]string{"--max-requests-inflight", "9223372036854775807"}, []string{"--max-requests-inflight", "0 for no bound"}},
		{[]string{"--max-requests-inflight", "many"}, []string{"--max-requests-inflight"}},
		{[]string{"--max-long-running-requests", "-1"}, []string{"--max-long-running-requests -1", "0 for no bound"}},
		{[]string{"--max-connections", "-1"}, []string{"--max-connections -1", "0 for no bound"}},
		{[]string{"--max-inflight-bytes", "much"}, []string{"--max-inflight-bytes", "512Mi"}},
		{[]string{"--max-inflight-bytes", "-1"}, []string{"--max-inflight-bytes", "512Mi"}},
		{[]string{"--max-body-bytes", "much"}, []string{"--max-body-bytes", "512Mi"}},
		{[]string{"--max-body-bytes", "-1Mi"}, []string{"--max-body-bytes", "512Mi"}},
		{[]string{"--overload-wait", "-1s"}, []string{"--overload-wait -1s", "0 to let nobody wait"}},
		{[]string{"--overload-wait", "5"}, []string{"--overload-wait", "unit"}},
		{[]string{"--self-check-interval", "-1s"}, []string{"--self-check-interval -1s", "at least 1s"}},
		{[]string{"--self-check-interval", "10ms"}, []string{"--self-check-interval 10ms", "or 0"}},
		{[]string{"--stall-timeout", "-1s"}, []string{"--stall-timeout -1s", "at least 1s"}},
		{[]string{"--stall-timeout", "999ms"}, []string{"--stall-timeout 999ms", "at least 1s"}},

		{[]string{"--audit-log-path", "x", "--audit-log-maxsize", "-1"}, []string{"--audit-log-maxsize=-1", "negative"}},
		{[]string{"--audit-log-path", "x", "--audit-log-maxbackup", "-1"}, []string{"--audit-log-maxbackup=-1", "negative"}},
		{[]string{"--audit-log-path", "x", "--audit-log-maxage", "-1"}, []string{"--audit-log-maxage=-1", "negative"}},
		{[]string{"--audit-log-maxsize", "1"}, []string{"--audit-log-maxsize=1", "--audit-log-path"}},
		{[]string{"--audit-log-maxbackup", "1"}, []string{"--audit-log-maxbackup=1", "--audit-log-path"}},
		{[]string{"--audit-log-maxage", "1"}, []string{"--audit-log-maxage=1", "--audit-log-path"}},
		{[]string{"--audit-log-compress"}, []string{"--audit-log-compress", "--audit-log-path"}},
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

// TestWrongHeaderNames: what only the making of an identifier finds names the flags too.
func TestWrongHeaderNames(t *testing.T) {
	ca := newCA(t)
	for _, flag := range []string{
		"--requestheader-username-headers", "--requestheader-uid-headers", "--requestheader-group-headers", "--requestheader-extra-headers-prefix",
	} {
		o, err := parse("--requestheader-client-ca-file", ca, "--requestheader-allowed-names", "front", flag, `"  "`)
		if err == nil {
			_, err = o.identity.authenticator()
		}
		if err == nil || !strings.Contains(err.Error(), "--requestheader-") {
			t.Errorf("%s with an empty name: %v", flag, err)
		}
	}
}

// TestIdentityLimitAndAuditOptions: what the flags mean.
func TestIdentityLimitAndAuditOptions(t *testing.T) {
	ca := newCA(t)
	o, err := parse("--client-ca-file", ca, "--requestheader-client-ca-file", ca, "--requestheader-allowed-names", "front",
		"--max-inflight-bytes", "64Mi", "--max-body-bytes", "0", "--stall-timeout", "0", "--audit-log-path", "-")
	if err != nil {
		t.Fatal(err)
	}
	if got := len(o.identity.cas()); got != 2 {
		t.Errorf("%d CAs of clients", got)
	}
	if _, err := o.identity.authenticator(); err != nil {
		t.Error(err)
	}
	if o.limits.answerBytes != 64<<20 || o.limits.bodyBytes != 0 || o.limits.stall != 0 {
		t.Errorf("limits: %+v", o.limits)
	}
	if !o.audit.Enabled() {
		t.Error("no audit log")
	}
}
