package telemetry

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestResource: newResource takes the service's name from OTEL_SERVICE_NAME, else from OTEL_RESOURCE_ATTRIBUTES, else it is
// listproxy. It adds a version and an instance. It refuses attributes that it cannot read.
func TestResource(t *testing.T) {
	clearOTEL(t)
	for _, tt := range []struct {
		serviceName string // OTEL_SERVICE_NAME
		attributes  string // OTEL_RESOURCE_ATTRIBUTES
		wantName    string
	}{
		{wantName: "listproxy"},
		{attributes: "service.name=attribute,zone=a", wantName: "attribute"},
		{serviceName: "name", attributes: "service.name=attribute", wantName: "name"},
	} {
		t.Setenv("OTEL_SERVICE_NAME", tt.serviceName)
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", tt.attributes)
		res, err := newResource(t.Context(), "v1.2.3")
		expect.NoError(t, err)
		got := map[string]string{}
		for _, a := range res.Attributes() {
			got[string(a.Key)] = a.Value.Emit()
		}
		expect.Same(t, tt.wantName, got["service.name"])
		expect.Same(t, "v1.2.3", got["service.version"])
		if got["service.instance.id"] == "" {
			t.Errorf("the attributes are %v, want an instance", got)
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
