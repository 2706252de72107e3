package telemetry

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestMetricsAreReadByPrometheus(t *testing.T) {
	metrics := NewMetrics("v1.2.3")
	things := prometheus.NewCounter(prometheus.CounterOpts{Name: "listproxy_things_total", Help: "Things."})
	metrics.MustRegister(things)
	things.Add(5)
	w := httptest.NewRecorder()
	MetricsHandler(metrics, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		"# HELP listproxy_things_total Things.\n", "# TYPE listproxy_things_total counter\n", "\nlistproxy_things_total 5\n",
		"\ngo_goroutines ", "\nprocess_resident_memory_bytes ",
		"\ntarget_info{service_name=\"listproxy\",service_version=\"v1.2.3\"} 1\n",
	} {
		if !strings.Contains(w.Body.String(), line) {
			t.Errorf("%q is missing:\n%s", line, w.Body.String())
		}
	}
}
