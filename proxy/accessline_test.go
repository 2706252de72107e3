package proxy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestAccessLineIsOptIn: at info requests have no line, and a refused one has its line at access.
func TestAccessLineIsOptIn(t *testing.T) {
	clients := proxytest.NewCA(t)
	identifier, err := authn.New(authn.Config{ClientCA: clients.Options})
	expect.NoError(t, err)
	certificate := clients.Issue(t, pkix.Name{CommonName: "alice"}, nil)
	for level, want := range map[slog.Level]int{slog.LevelInfo: 0, telemetry.LevelAccess: 1, slog.LevelDebug: 1} {
		var out bytes.Buffer
		h := &Handler{
			Authenticator: identifier, Log: telemetry.NewLogger(&out, telemetry.FormatText, level),
			Observer:    observetest.Unread(),
			Collections: &snapshot.Collections{}, Draining: func() bool { return false },
		}
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
		r.Header.Set("Impersonate-User", "root") // beside a certificate: refused
		h.Chain().ServeHTTP(httptest.NewRecorder(), r)
		if got := strings.Count(out.String(), "level=ACCESS msg=request "); got != want {
			t.Errorf("at %v: %d lines: %s", level, got, &out)
		}
	}
}
