package telemetry

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// clearOTEL unsets the variables that the machine's environment may have, until the test ends.
func clearOTEL(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		envDisabled, envExporter, envEndpoint, envTracesEndpoint, envProtocol, envTracesProtocol,
		"OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
		"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_CERTIFICATE", "OTEL_EXPORTER_OTLP_TIMEOUT",
	} {
		t.Setenv(name, "") // restores the variable when the test ends
		expect.NoError(t, os.Unsetenv(name))
	}
}

// TestNewTraces: the environment decides whether NewTraces returns a provider, and whether the provider samples. An error names
// the variable. An unknown sampler is logged. (TestTraces of test/e2e/operators sends spans over gRPC, the default.)
func TestNewTraces(t *testing.T) {
	const endpoint = "http://127.0.0.1:1"
	for name, tt := range map[string]struct {
		env        map[string]string
		wantTraces bool
		wantSpans  bool   // the sampler keeps spans
		wantErr    string // a part of the error
		wantLog    string // a part of the log
	}{
		"an empty environment":       {},
		"an endpoint":                {env: map[string]string{envEndpoint: endpoint}, wantTraces: true, wantSpans: true},
		"an endpoint for traces":     {env: map[string]string{envTracesEndpoint: endpoint}, wantTraces: true, wantSpans: true},
		"the exporter otlp":          {env: map[string]string{envExporter: "otlp"}, wantTraces: true, wantSpans: true},
		"no exporter, with endpoint": {env: map[string]string{envEndpoint: endpoint, envExporter: "none"}},
		"the SDK disabled":           {env: map[string]string{envEndpoint: endpoint, envDisabled: "true"}},
		"a sampler": {
			env: map[string]string{
				envEndpoint: endpoint, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0",
			},
			wantTraces: true,
		},
		"an unknown exporter": {
			env:     map[string]string{envExporter: "zipkin"},
			wantErr: `OTEL_TRACES_EXPORTER="zipkin": listproxy sends traces by OTLP only`,
		},
		"an unknown protocol": {
			env:     map[string]string{envEndpoint: endpoint, envTracesProtocol: "http/json"},
			wantErr: `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json": choose grpc or http/protobuf`,
		},
		"an empty sampler": {
			env:        map[string]string{envEndpoint: endpoint, "OTEL_TRACES_SAMPLER": ""},
			wantTraces: true, wantSpans: true, wantLog: "unsupported sampler: ",
		},
		"a ratio above 1": {
			env: map[string]string{
				envEndpoint: endpoint, "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2",
			},
			wantTraces: true, wantSpans: true, wantLog: "greater than 1.0",
		},
		"an unknown sampler": {
			env:        map[string]string{envEndpoint: endpoint, "OTEL_TRACES_SAMPLER": "some"},
			wantTraces: true, wantSpans: true, wantLog: "unsupported sampler: some",
		},
	} {
		t.Run(name, func(t *testing.T) {
			clearOTEL(t)
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			var log strings.Builder
			traces, err := NewTraces(t.Context(), "v1.2.3", slog.New(slog.NewTextHandler(&log, nil)))
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("the error is %v, want one with %q", err, tt.wantErr)
				}
				return
			}
			expect.NoError(t, err)
			if got := traces != nil; got != tt.wantTraces {
				t.Fatalf("NewTraces returns a provider: %t, want %t", got, tt.wantTraces)
			}
			if traces == nil {
				return
			}
			isLogged := log.String() != ""
			wantLogged := tt.wantLog != ""
			if isLogged != wantLogged || !strings.Contains(log.String(), tt.wantLog) {
				t.Errorf("the log is %q, want %q in it, or nothing if that is empty", log.String(), tt.wantLog)
			}
			_, span := traces.Tracer("test").Start(t.Context(), "span") // never ends, so nothing is sent
			if got := span.IsRecording(); got != tt.wantSpans {
				t.Errorf("the span is recorded: %t, want %t", got, tt.wantSpans)
			}
			expect.NoError(t, traces.Shutdown(t.Context()))
		})
	}
}

// TestTracesOverHTTP: with the protocol http/protobuf a span is sent by POST to the endpoint. The variables for traces
// take precedence over the general ones.
func TestTracesOverHTTP(t *testing.T) {
	var received atomic.Value
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received.Store(r.Method + " " + r.URL.Path)
	}))
	defer collector.Close()
	for name, tt := range map[string]struct {
		env  map[string]string
		want string
	}{
		"general": {
			env:  map[string]string{envEndpoint: collector.URL, envProtocol: protocolHTTP},
			want: "POST /v1/traces",
		},
		"for traces": {
			env: map[string]string{
				envEndpoint: "http://127.0.0.1:1", envTracesEndpoint: collector.URL + "/here",
				envProtocol: protocolGRPC, envTracesProtocol: protocolHTTP,
			},
			want: "POST /here",
		},
	} {
		t.Run(name, func(t *testing.T) {
			clearOTEL(t)
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			traces, err := NewTraces(t.Context(), "v1.2.3", slog.New(slog.DiscardHandler))
			expect.NoError(t, err)
			_, span := traces.Tracer("test").Start(t.Context(), "span")
			span.End()
			expect.NoError(t, traces.Shutdown(t.Context()))
			expect.Same(t, any(tt.want), received.Load())
		})
	}
}
