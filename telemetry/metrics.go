package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

const (
	// maxSeries is how many series one metric may have. All further ones count in one series with the
	// label otel_metric_overflow.
	maxSeries = 10000
	// maxScrapes is how many scrapes are answered at a time.
	maxScrapes = 4
)

// Metrics collects the values of all instruments, and Prometheus reads them from it.
type Metrics struct {
	metric.MeterProvider
	registry *prometheus.Registry
	shutdown func(context.Context) error
}

// NewMetrics returns Metrics with those of the Go runtime and of the process (go_*, process_*, as
// client_golang names them). Nothing of it is global.
func NewMetrics(res *resource.Resource) (*Metrics, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("the metrics of the process: %w", err)
		}
	}
	// There is one scope only, so its name in every series would say nothing.
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics for Prometheus: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(
		sdkmetric.WithReader(exporter), sdkmetric.WithResource(res), sdkmetric.WithCardinalityLimit(maxSeries),
	)
	return &Metrics{MeterProvider: provider, registry: registry, shutdown: provider.Shutdown}, nil
}

// Gatherer reads all metrics, as Prometheus sees them.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Handler answers scrapes of Prometheus. Metrics that cannot be read are left out and logged.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: scrapeLog{log}, ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes, EnableOpenMetrics: true,
	})
}

// Shutdown ends the reading of metrics.
func (m *Metrics) Shutdown(ctx context.Context) error {
	if err := m.shutdown(ctx); err != nil && !errors.Is(err, sdkmetric.ErrReaderShutdown) {
		return err
	}
	return nil
}

// scrapeLog is a [promhttp.Logger].
type scrapeLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (s scrapeLog) Println(v ...any) { s.log.Warn("metrics", "error", fmt.Sprint(v...)) }
