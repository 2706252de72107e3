package telemetry

import (
	"context"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/listproxy/listproxy/test/expect"
)

// collector is one of OTLP over HTTP. It passes on what it is sent.
func collector(t *testing.T, tls bool) (*httptest.Server, <-chan *http.Request) {
	t.Helper()
	sent := make(chan *http.Request, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent <- r }))
	if tls {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server, sent
}

// recorded returns one span that is still to be sent, with what the environment says.
func recorded(t *testing.T) *sdktrace.TracerProvider {
	t.Helper()
	traces, err := NewTraces(t.Context(), "v1.2.3", slog.New(slog.DiscardHandler))
	expect.NoError(t, err)
	_, span := traces.Tracer("test").Start(t.Context(), "span")
	span.End()
	return traces
}

// TestExporterVariables: those of the exporter do what docs/observability.md says.
func TestExporterVariables(t *testing.T) {
	const overHTTP = "http/protobuf"
	for name, tt := range map[string]struct {
		tls  bool
		env  map[string]string // with URL and CA for those of the collector
		path string
		head string // a header that is sent
	}{
		"endpoint": {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "URL", "OTEL_EXPORTER_OTLP_PROTOCOL": overHTTP}, path: "/v1/traces"},
		"endpoint for traces": {env: map[string]string{
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "URL/here", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": overHTTP,
		}, path: "/here"},
		"that for traces is the stronger": {env: map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "URL/here",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": overHTTP,
		}, path: "/here"},
		"headers": {env: map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "URL", "OTEL_EXPORTER_OTLP_PROTOCOL": overHTTP, "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=mine",
		}, path: "/v1/traces", head: "X-Tenant"},
		"certificate": {tls: true, env: map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "URL", "OTEL_EXPORTER_OTLP_PROTOCOL": overHTTP,
			"OTEL_EXPORTER_OTLP_CERTIFICATE": "CA", "OTEL_TRACES_EXPORTER": "otlp",
		}, path: "/v1/traces"},
	} {
		t.Run(name, func(t *testing.T) {
			clearOTEL(t)
			server, sent := collector(t, tt.tls)
			ca := filepath.Join(t.TempDir(), "ca.crt")
			if tt.tls {
				text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
				expect.NoError(t, os.WriteFile(ca, text, 0o600))
			}
			for name, value := range tt.env {
				t.Setenv(name, strings.NewReplacer("URL", server.URL, "CA", ca).Replace(value))
			}
			expect.NoError(t, recorded(t).Shutdown(context.Background()))
			select {
			case r := <-sent:
				if r.URL.Path != tt.path || tt.head != "" && r.Header.Get(tt.head) != "mine" {
					t.Errorf("sent to %s, with %v", r.URL.Path, r.Header)
				}
			default:
				t.Error("nothing was sent")
			}
		})
	}
}

// TestGRPCIsTheDefault: without a protocol, what comes is HTTP/2 without an upgrade.
func TestGRPCIsTheDefault(t *testing.T) {
	clearOTEL(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	defer func() { _ = listener.Close() }()
	began := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		preface := make([]byte, 14)
		n, _ := io.ReadFull(conn, preface)
		began <- string(preface[:n])
	}()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	// It connects when it has something to send, and within this time, or not at all.
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60000")
	traces := recorded(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = traces.Shutdown(ctx) // there is no collector
	}()
	expect.Same(t, "PRI * HTTP/2.0", <-began)
	cancel()
	<-ended
}

// TestDocumentedVariables: each that docs/observability.md names is set in a test here.
func TestDocumentedVariables(t *testing.T) {
	docs, err := os.ReadFile("../docs/observability.md")
	expect.NoError(t, err)
	var tests strings.Builder
	for _, file := range []string{"environment_test.go", "traces_test.go", "traces.go"} { // the last has names of them
		text, err := os.ReadFile(file)
		expect.NoError(t, err)
		tests.Write(text)
	}
	names := regexp.MustCompile("`(OTEL_[A-Z_]+)`").FindAllStringSubmatch(string(docs), -1)
	if len(names) < 10 {
		t.Fatalf("only %d variables are documented", len(names))
	}
	for _, name := range names {
		if !strings.Contains(tests.String(), `"`+name[1]+`"`) {
			t.Errorf("%s has no test", name[1])
		}
	}
}
