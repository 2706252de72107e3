package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/telemetry"
)

// logOptions are the flags of the log. Metrics need no flags, and environment variables (OTEL_*) configure traces.
type logOptions struct {
	logFormat telemetry.Format
	logLevel  string

	level slog.Level // logLevel, parsed by Validate
}

// AddFlags implements optionGroup.
func (o *logOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.logLevel, "log-level", "info",
		"`level`: debug, access (a line for every request), info, warn or error")
	fs.StringVar((*string)(&o.logFormat), "log-format", string(telemetry.FormatText), "`text` or json")
}

// Validate implements optionGroup.
func (o *logOptions) Validate() error {
	level, err := telemetry.ParseLevel(o.logLevel)
	if err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	o.level = level
	if o.logFormat != telemetry.FormatText && o.logFormat != telemetry.FormatJSON {
		return fmt.Errorf("--log-format %q: choose text or json", o.logFormat)
	}
	return nil
}

// instruments has the observer of requests, and the metrics and traces that it writes to.
type instruments struct {
	observer *observe.Observer
	traces   *sdktrace.TracerProvider // nil if no traces are sent
	metrics  *prometheus.Registry
}

// newInstruments makes the metrics, and the traces if the environment (OTEL_*) asks for them. The caller must call close at
// the end, or the last traces are lost.
func newInstruments(ctx context.Context, log *slog.Logger) (*instruments, error) {
	traces, err := telemetry.NewTraces(ctx, version(), log)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	if traces != nil {
		log.Info("traces are sent")
	}
	metrics := telemetry.NewMetrics(version())
	return &instruments{observer: observe.New(traces, metrics), traces: traces, metrics: metrics}, nil
}

// close sends the last traces, if traces are sent.
func (i *instruments) close(log *slog.Logger) {
	if i.traces == nil {
		return
	}
	const flushTimeout = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := i.traces.Shutdown(ctx); err != nil {
		log.Warn("the last traces could not be sent", "error", err)
	}
}
