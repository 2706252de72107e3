package telemetry

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// clearOTEL takes away what the machine's environment says.
func clearOTEL(t *testing.T) {
	for _, name := range []string{
		envDisabled, envExporter, envEndpoint, envTracesEndpoint, envProtocol, envTracesProtocol, envSampler, envSamplerArg,
		"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_CERTIFICATE", "OTEL_EXPORTER_OTLP_TIMEOUT",
	} {
		t.Setenv(name, "")
	}
}

// TestNewTraces: traces are exported as the environment asks. A span is sent to where it says, over gRPC by default.
func TestNewTraces(t *testing.T) {
	var sent atomic.Value
	collector := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Store(r.Method + " " + r.URL.Path)
		if r.ProtoMajor == 2 { // an empty message of gRPC
			w.Header().Set("Content-Type", "application/grpc")
			_, _ = w.Write(make([]byte, 5))
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}
	}))
	collector.Config.Protocols = new(http.Protocols)
	collector.Config.Protocols.SetHTTP1(true)
	collector.Config.Protocols.SetUnencryptedHTTP2(true)
	collector.Start()
	defer collector.Close()
	const endpoint = "http://127.0.0.1:1"
	for name, tt := range map[string]struct {
		env     map[string]string
		enabled bool
		sent    string // the request with a span
		err     string // a part
	}{
		"nothing":        {},
		"an endpoint":    {env: map[string]string{envEndpoint: endpoint}, enabled: true},
		"one for traces": {env: map[string]string{envTracesEndpoint: endpoint}, enabled: true},
		"otlp":           {env: map[string]string{envExporter: "otlp"}, enabled: true},
		"over gRPC": {
			env:     map[string]string{envEndpoint: collector.URL},
			enabled: true, sent: "POST /opentelemetry.proto.collector.trace.v1.TraceService/Export",
		},
		"over HTTP": {env: map[string]string{envEndpoint: collector.URL, envProtocol: protocolHTTP}, enabled: true, sent: "POST /v1/traces"},
		"the one for traces is the stronger": {env: map[string]string{
			envEndpoint: endpoint, envTracesEndpoint: collector.URL + "/here", envProtocol: protocolGRPC, envTracesProtocol: protocolHTTP,
		}, enabled: true, sent: "POST /here"},
		"none":             {env: map[string]string{envEndpoint: endpoint, envExporter: "none"}},
		"disabled":         {env: map[string]string{envEndpoint: endpoint, envDisabled: "true"}},
		"a sampler":        {env: map[string]string{envEndpoint: endpoint, envSampler: "parentbased_traceidratio", envSamplerArg: "0"}, enabled: true},
		"another exporter": {env: map[string]string{envExporter: "zipkin"}, err: `OTEL_TRACES_EXPORTER="zipkin": listproxy sends traces by OTLP only`},
		"another protocol": {
			env: map[string]string{envEndpoint: endpoint, envTracesProtocol: "http/json"},
			err: `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/json": choose grpc or http/protobuf`,
		},
		"an unknown sampler": {
			env: map[string]string{envEndpoint: endpoint, envSampler: "some"},
			err: `OTEL_TRACES_SAMPLER="some", OTEL_TRACES_SAMPLER_ARG="": unsupported sampler: some: choose always_on, always_off or traceidratio,`,
		},
		"a ratio of too much": {
			env: map[string]string{envEndpoint: endpoint, envSampler: "traceidratio", envSamplerArg: "2"},
			err: `OTEL_TRACES_SAMPLER_ARG="2": invalid trace ID ratio: greater than 1.0`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			clearOTEL(t)
			sent.Store("")
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			traces, err := NewTraces(t.Context(), "v1.2.3", slog.New(slog.DiscardHandler))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			expect.NoError(t, err)
			if (traces != nil) != tt.enabled {
				t.Errorf("enabled is %v", traces != nil)
			}
			if traces == nil {
				return
			}
			_, span := traces.Tracer("test").Start(t.Context(), "span")
			if sampled := name != "a sampler"; span.IsRecording() != sampled {
				t.Errorf("recording is %v", span.IsRecording())
			}
			if tt.sent != "" { // else no span ends, so that none is sent
				span.End()
			}
			expect.NoError(t, traces.Shutdown(t.Context()))
			expect.Same(t, any(tt.sent), sent.Load())
		})
	}
}

// TestResource: traces name the service as the environment says, else listproxy, with version and instance.
func TestResource(t *testing.T) {
	clearOTEL(t)
	for env, want := range map[[2]string]string{
		{"", ""}: "listproxy", {"", "service.name=theirs,zone=a"}: "theirs", {"mine", "service.name=theirs"}: "mine",
	} {
		t.Setenv("OTEL_SERVICE_NAME", env[0])
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", env[1])
		res, err := newResource(t.Context(), "v1.2.3")
		expect.NoError(t, err)
		got := map[string]string{}
		for _, a := range res.Attributes() {
			got[string(a.Key)] = a.Value.Emit()
		}
		if got["service.name"] != want || got["service.version"] != "v1.2.3" || got["service.instance.id"] == "" {
			t.Errorf("%q: %v", env, got)
		}
	}
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "no pair")
	if _, err := newResource(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "OTEL_RESOURCE_ATTRIBUTES") {
		t.Errorf("got %v", err)
	}
}

// TestMetrics: those of the runtime, of the process and of the version are there from the beginning.
func TestMetrics(t *testing.T) {
	w := httptest.NewRecorder()
	MetricsHandler(NewMetrics("v1.2.3"), slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	expect.Says(t, w.Body.String(), "\ngo_goroutines ", "\nprocess_resident_memory_bytes ",
		"\ntarget_info{service_name=\"listproxy\",service_version=\"v1.2.3\"} 1\n")
}
