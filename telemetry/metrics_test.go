package telemetry

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/listproxy/listproxy/test/expect"
)

func TestMetricsAreReadByPrometheus(t *testing.T) {
	metrics, err := NewMetrics(resource.Empty())
	expect.NoError(t, err)
	counter, err := metrics.Meter("test").Int64Counter("listproxy.things", metric.WithUnit("By"), metric.WithDescription("Things."))
	expect.NoError(t, err)
	counter.Add(t.Context(), 5)
	w := httptest.NewRecorder()
	metrics.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		"# HELP listproxy_things_bytes_total Things.\n", "# TYPE listproxy_things_bytes_total counter\n", "\nlistproxy_things_bytes_total 5\n",
		"\ngo_goroutines ", "\nprocess_resident_memory_bytes ",
	} {
		if !strings.Contains(w.Body.String(), line) {
			t.Errorf("%q is missing:\n%s", line, w.Body.String())
		}
	}
	if err := metrics.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
