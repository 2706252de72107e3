package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"golang.org/x/time/rate"
)

// serviceName is the service's name in metrics, and in traces unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES give
// another.
const serviceName = "listproxy"

// The variables of the environment that are read here. OpenTelemetry's exporters and SDK read the others: endpoints,
// headers, certificates, timeouts, the sizes of batches.
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

// The protocols of OTLP.
const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
)

// errorsEvery is the time between two lines of the log about traces that cannot be sent.
const errorsEvery = time.Minute

// NewTraces returns the tracer provider that the environment configures, by OpenTelemetry's specification
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables), with one other default: without
// OTEL_TRACES_EXPORTER=otlp and without an endpoint it returns nil, and nothing is sent. The specification's default
// would look for a collector on localhost that nobody has set up. The protocol is grpc by default. An error names a
// variable, and has nothing of the headers.
//
// From then on the errors of OpenTelemetry's libraries, for example in sending, go to log once a minute at most. The
// libraries have only one such handler in a process.
func NewTraces(ctx context.Context, version string, log *slog.Logger) (*sdktrace.TracerProvider, error) {
	wanted, err := tracesWanted()
	if err != nil || !wanted {
		return nil, err
	}
	res, err := newResource(ctx, version)
	if err != nil {
		return nil, err
	}
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, err
	}
	var wrong error // of the sampler: the SDK tells only the error handler, and samples everything
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { wrong = err }))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	sometimes := rate.Sometimes{First: 1, Interval: errorsEvery}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		sometimes.Do(func() { log.Warn("telemetry", "error", err) })
	}))
	if sampler := os.Getenv(envSampler); wrong != nil && sampler != "" {
		return nil, errors.Join(provider.Shutdown(ctx), fmt.Errorf(
			"%s=%q, %s=%q: %w: choose always_on, always_off or traceidratio, or one of these with parentbased_ before it; "+
				"a ratio is a number from 0 to 1", envSampler, sampler, envSamplerArg, os.Getenv(envSamplerArg), wrong))
	}
	return provider, nil
}

// newResource returns the resource that traces come from: this process, by its name, its version and a random ID.
// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add to these, and take precedence.
func newResource(ctx context.Context, version string) (*resource.Resource, error) {
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			semconv.ServiceName(serviceName),
			semconv.ServiceVersion(version),
			semconv.ServiceInstanceID(uuid.NewString()),
		),
		resource.WithFromEnv(), // the last takes precedence
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES cannot be read, write key=value,key=value: %w", err)
	}
	return res, nil
}

// tracesWanted reports whether the environment asks for traces.
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

// newExporter returns the exporter for the protocol that the environment names.
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
		// The error may quote a secret from the environment.
		return nil, errors.New("the OTLP exporter for traces cannot be made: check the variables OTEL_EXPORTER_OTLP_*")
	}
	return exporter, nil
}
