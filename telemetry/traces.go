package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/time/rate"
)

// The variables of the environment that are read here. All others of OpenTelemetry's specification
// are read by its exporters and its SDK: endpoints, headers, certificates, time-outs, the sizes of
// batches.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envSampler        = "OTEL_TRACES_SAMPLER"
	envSamplerArg     = "OTEL_TRACES_SAMPLER_ARG"
)

// The two ways in which OTLP travels.
const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
)

// errorsEvery is how often the log says that traces cannot be sent.
const errorsEvery = time.Minute

// Traces is where spans go.
type Traces struct {
	trace.TracerProvider
	shutdown func(context.Context) error
	sampler  string // in words
}

// Enabled says whether spans go anywhere at all. If not, nothing of a trace is made or changed.
func (t *Traces) Enabled() bool { return t.shutdown != nil }

// Sampler says in words by which sampler spans are chosen.
func (t *Traces) Sampler() string { return t.sampler }

// Shutdown sends what is left, within ctx. Nothing is recorded after it.
func (t *Traces) Shutdown(ctx context.Context) error {
	if t.shutdown == nil {
		return nil
	}
	return t.shutdown(ctx)
}

// NewTraces makes of the environment what OpenTelemetry's specification says
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables), with one
// other default: without OTEL_TRACES_EXPORTER=otlp and without an endpoint nothing is sent. The
// specification's default would look for a collector on localhost that nobody has set up. The
// protocol is grpc by default. An error names the variable and never its value's secrets: headers
// are not in it.
func NewTraces(ctx context.Context, res *resource.Resource) (*Traces, error) {
	wanted, err := tracesWanted()
	if err != nil || !wanted {
		return &Traces{TracerProvider: noop.NewTracerProvider()}, err
	}
	sampler, err := newSampler(os.Getenv(envSampler), os.Getenv(envSamplerArg))
	if err != nil {
		return nil, err
	}
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res), sdktrace.WithSampler(sampler))
	return &Traces{TracerProvider: provider, shutdown: provider.Shutdown, sampler: sampler.words}, nil
}

// tracesWanted says whether the environment asks for traces.
func tracesWanted() (bool, error) {
	if disabled, err := strconv.ParseBool(os.Getenv(envDisabled)); err == nil && disabled {
		return false, nil
	}
	switch exporter := os.Getenv(envExporter); exporter {
	case "otlp":
		return true, nil
	case "none":
		return false, nil
	case "":
		return os.Getenv(envEndpoint) != "" || os.Getenv(envTracesEndpoint) != "", nil
	default:
		return false, fmt.Errorf("%s=%q: listproxy sends traces by OTLP only: write otlp, or none", envExporter, exporter)
	}
}

func newExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	name, protocol := envTracesProtocol, os.Getenv(envTracesProtocol)
	if protocol == "" {
		name, protocol = envProtocol, os.Getenv(envProtocol)
	}
	var exporter sdktrace.SpanExporter
	var err error
	switch protocol {
	case protocolGRPC, "":
		exporter, err = otlptracegrpc.New(ctx)
	case protocolHTTP:
		exporter, err = otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("%s=%q: choose %s or %s", name, protocol, protocolGRPC, protocolHTTP)
	}
	if err != nil {
		// What it quotes of the environment may be a secret.
		return nil, errors.New("the OTLP exporter for traces cannot be made: check the variables OTEL_EXPORTER_OTLP_*")
	}
	return exporter, nil
}

// LogErrors makes OpenTelemetry's libraries say in log what they cannot do, such as to send traces,
// once a minute at most. It is one for the process, like klog's logger: the libraries have no other
// way.
func LogErrors(log *slog.Logger) {
	sometimes := rate.Sometimes{First: 1, Interval: errorsEvery}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		sometimes.Do(func() { log.Warn("telemetry", "error", err) })
	}))
}
