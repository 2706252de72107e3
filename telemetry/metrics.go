package telemetry

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewMetrics returns a registry with the metrics of the Go runtime and the process (go_*, process_*). It also has target_info
// with the version, as OpenTelemetry specifies it for Prometheus.
func NewMetrics(version string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	target := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "target_info", Help: "What is scraped.",
		ConstLabels: prometheus.Labels{"service_name": serviceName, "service_version": version},
	})
	target.Set(1)
	registry.MustRegister(target, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// MetricsHandler returns a handler for scrapes of Prometheus. Metrics that cannot be read are left out and logged.
func MetricsHandler(registry *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
		EnableOpenMetrics:   true,
	})
}
