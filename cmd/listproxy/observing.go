package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/telemetry"
)

// telemetryOptions say what is logged. Metrics are on the admin port; traces are configured by the
// OTEL_* variables of the environment.
type telemetryOptions struct {
	logFormat string
	logLevel  string

	level slog.Level // by Validate
}

// AddFlags implements optionGroup.
func (o *telemetryOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.logLevel, "log-level", o.logLevel, "`level`: debug, access (a line for every request), info, warn or error")
	fs.StringVar(&o.logFormat, "log-format", o.logFormat, "`text` or json")
}

// Validate implements optionGroup.
func (o *telemetryOptions) Validate() (err error) {
	if o.level, err = telemetry.ParseLevel(o.logLevel); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	if o.logFormat != string(telemetry.FormatText) && o.logFormat != string(telemetry.FormatJSON) {
		return fmt.Errorf("--log-format %q: choose text or json", o.logFormat)
	}
	return nil
}

// logger writes to w what is to be logged.
func (o *telemetryOptions) logger(w io.Writer) *slog.Logger {
	return telemetry.NewLogger(w, telemetry.Format(o.logFormat), o.level)
}

// flushTimeout is the time that the last traces may take to be sent at the end.
const flushTimeout = 5 * time.Second

// observing tells operators what the process does, beside its log: metrics, and traces, which the standard OTEL_*
// variables of the environment configure.
type observing struct {
	*observe.Observer
	traces  *sdktrace.TracerProvider // nil: none are wanted
	metrics *prometheus.Registry
}

func newObserving(ctx context.Context, log *slog.Logger) (*observing, error) {
	traces, err := telemetry.NewTraces(ctx, version(), log)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	o := &observing{traces: traces, metrics: telemetry.NewMetrics(version())}
	if traces == nil {
		o.Observer = observe.New(nil, o.metrics) // a nil *TracerProvider would be no nil interface
		return o, nil
	}
	log.Info("traces are sent")
	o.Observer = observe.New(traces, o.metrics)
	return o, nil
}

// close sends the last traces.
func (o *observing) close(log *slog.Logger) {
	if o.traces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := o.traces.Shutdown(ctx); err != nil {
		log.Warn("the last traces could not be sent", "error", err)
	}
}

// reviews returns send, with each review counted and in the trace.
func (o *observing) reviews(send auth.SendAs) auth.SendAs {
	return observe.Asking(o.Observer, observe.PurposeReview, send) //nolint:bodyclose // a function is returned, and no response
}

// whoAmI returns send, with each question who a caller is counted and in the trace.
func (o *observing) whoAmI(send auth.SendAs) auth.SendAs {
	return observe.Asking(o.Observer, observe.PurposeWhoAmI, send) //nolint:bodyclose // a function is returned, and no response
}
