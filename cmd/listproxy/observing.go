package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/listproxy/listproxy/proxy/authz"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/telemetry"
)

// flushTimeout is how long the last traces may take to be sent at the end.
const flushTimeout = 5 * time.Second

// observing is what tells operators what the process does, beside its log. The standard OTEL_*
// variables of the environment configure it.
type observing struct {
	*observe.Observer
	traces  *telemetry.Traces
	metrics *telemetry.Metrics
}

func newObserving(ctx context.Context, log *slog.Logger) (*observing, error) {
	telemetry.LogErrors(log)
	resource, err := telemetry.NewResource(ctx, version())
	if err != nil {
		return nil, err
	}
	o := &observing{}
	if o.metrics, err = telemetry.NewMetrics(resource); err != nil {
		return nil, err
	}
	if o.traces, err = telemetry.NewTraces(ctx, resource); err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	var provider trace.TracerProvider
	if o.traces.Enabled() {
		log.Info("traces are sent")
		provider = o.traces
	}
	if o.Observer, err = observe.New(provider, o.metrics); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return o, nil
}

// close sends the last traces.
func (o *observing) close(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := errors.Join(o.traces.Shutdown(ctx), o.metrics.Shutdown(ctx)); err != nil {
		log.Warn("the last traces could not be sent", "error", err)
	}
}

// reviews returns send, observed.
func (o *observing) reviews(send authz.SendAs) authz.SendAs {
	return observe.Reviews(o.Observer, send) //nolint:bodyclose // a function is returned, and no response
}

// whoAmI returns send, observed.
func (o *observing) whoAmI(send authz.SendAs) authz.SendAs {
	return observe.WhoAmI(o.Observer, send) //nolint:bodyclose // a function is returned, and no response
}
