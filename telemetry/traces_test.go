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
	for _, name := range []string{
		envDisabled, envExporter, envEndpoint, envTracesEndpoint, envProtocol, envTracesProtocol,
		"OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
		"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_CERTIFICATE", "OTEL_EXPORTER_OTLP_TIMEOUT",
	} {
		t.Setenv(name, "") // restores the variable when the test ends
		expect.NoError(t, os.Unsetenv(name))
	}
}

// TestNewTraces: the environment decides whether NewTraces returns a provider, and whether the provider samples. An
// error names the variable. An unknown sampler is logged. (TestTraces in test/e2e/operators has spans that are sent over gRPC, the default.)
func TestNewTraces(t *testing.T) {
	const endpoint = "http://127.0.0.1:1"
	for name, tt := range map[string]struct {
		env         map[string]string
		wantTraces  bool
		wantNoSpans bool   // the sampler drops all spans
		wantErr     string // a part
		wantLog     string // a part
	}{
		"an empty environment":       {},
		"an endpoint":                {env: map[string]string{envEndpoint: endpoint}, wantTraces: true},
		"an endpoint for traces":     {env: map[string]string{envTracesEndpoint: endpoint}, wantTraces: true},
		"the exporter otlp":          {env: map[string]string{envExporter: "otlp"}, wantTraces: true},
		"no exporter, with endpoint": {env: map[string]string{envEndpoint: endpoint, envExporter: "none"}},
		"the SDK disabled":           {env: map[string]string{envEndpoint: endpoint, envDisabled: "true"}},
		"a sampler": {
			env: map[string]string{
				envEndpoint: endpoint, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0",
			},
			wantTraces: true, wantNoSpans: true,
		},
		"an unknown exporter": {
			env:     map[string]string{envExporter: "zipkin"},
			wantErr: `OTEL_TRACES_EXPORTER="zipkin": listproxy sends traces by OTLP only`,
		},
		"an unknown protocol": {
			env:     map[string]string{envEndpoint: endpoint, envTracesProtocol: "http/json"},
			wantErr: `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/json": choose grpc or http/protobuf`,
		},
		"an unknown sampler": {
			env:        map[string]string{envEndpoint: endpoint, "OTEL_TRACES_SAMPLER": "some"},
			wantTraces: true, wantLog: "unsupported sampler: some",
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
			if got := log.String(); !strings.Contains(got, tt.wantLog) || (got == "") != (tt.wantLog == "") {
				t.Errorf("the log is %q, want one with %q", got, tt.wantLog)
			}
			_, span := traces.Tracer("test").Start(t.Context(), "span") // never ends, so nothing is sent
			if got := span.IsRecording(); got == tt.wantNoSpans {
				t.Errorf("the span is recorded: %t, want %t", got, !tt.wantNoSpans)
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

// TestResource: newResource has the service's name from the environment, or listproxy, and a version and an instance.
func TestResource(t *testing.T) {
	clearOTEL(t)
	for _, tt := range []struct{ serviceName, attributes, want string }{
		{want: "listproxy"},
		{attributes: "service.name=attribute,zone=a", want: "attribute"},
		{serviceName: "name", attributes: "service.name=attribute", want: "name"},
	} {
		t.Setenv("OTEL_SERVICE_NAME", tt.serviceName)
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", tt.attributes)
		res, err := newResource(t.Context(), "v1.2.3")
		expect.NoError(t, err)
		got := map[string]string{}
		for _, a := range res.Attributes() {
			got[string(a.Key)] = a.Value.Emit()
		}
		if got["service.name"] != tt.want || got["service.version"] != "v1.2.3" || got["service.instance.id"] == "" {
			t.Errorf("the attributes are %v, want service.name %q, service.version v1.2.3 and an instance", got, tt.want)
		}
	}
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "no pair")
	if _, err := newResource(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "OTEL_RESOURCE_ATTRIBUTES") {
		t.Errorf("the error is %v, want one that names the variable", err)
	}
}

// TestMetrics: MetricsHandler of a new registry has metrics of Go's runtime, the process and the version.
func TestMetrics(t *testing.T) {
	w := httptest.NewRecorder()
	MetricsHandler(NewMetrics("v1.2.3"), slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	expect.Says(t, w.Body.String(), "\ngo_goroutines ", "\nprocess_resident_memory_bytes ",
		"\ntarget_info{service_name=\"listproxy\",service_version=\"v1.2.3\"} 1\n")
}
