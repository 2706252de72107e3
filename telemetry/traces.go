package telemetry

import (
	"cmp"
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

// serviceName is the service's name in metrics, and also in traces unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES give
// another name.
const serviceName = "listproxy"

// The environment variables that this package reads. OpenTelemetry's libraries read many more: for headers, certificates,
// timeouts, sizes of batches.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// The protocols of OTLP.
const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
)

// NewTraces returns the tracer provider that the environment configures, or nil, nil if it asks for no traces. An error names
// the variable. It quotes no headers, since these may have credentials.
//
// The variables have the meanings of OpenTelemetry's specification
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables). One default differs: traces are sent only
// if the environment has an endpoint or OTEL_TRACES_EXPORTER=otlp. The specification's default is a collector on localhost,
// which may not exist.
//
// If there are traces, NewTraces also sets OpenTelemetry's process-wide error handler, which logs at most one error a minute:
// for example, that spans cannot be sent, or that a sampler is unknown and the default is used.
func NewTraces(ctx context.Context, version string, log *slog.Logger) (*sdktrace.TracerProvider, error) {
	enabled, err := hasTraces()
	if err != nil || !enabled {
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
	logLimiter := rate.Sometimes{Interval: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		logLimiter.Do(func() { log.Warn("a library for traces reports an error", "error", err) })
	}))
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res)), nil
}

// hasTraces reports whether the environment asks for traces. It returns an error for an exporter that listproxy does not have.
func hasTraces() (bool, error) {
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
		return false, fmt.Errorf("%s=%q: listproxy sends traces by OTLP only: choose otlp or none", envExporter, exporter)
	}
}

// newResource returns the attributes of this process: its name, its version and a random ID. Those in OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES are added, and take precedence.
func newResource(ctx context.Context, version string) (*resource.Resource, error) {
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			semconv.ServiceName(serviceName),
			semconv.ServiceVersion(version),
			semconv.ServiceInstanceID(uuid.NewString()),
		),
		resource.WithFromEnv(), // the last option takes precedence
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES must have the form key=value,key=value: %w", err)
	}
	return res, nil
}

// newExporter returns the exporter for the protocol that the environment names; the default is grpc.
func newExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	var exporter sdktrace.SpanExporter
	var err error
	switch protocol := cmp.Or(os.Getenv(envTracesProtocol), os.Getenv(envProtocol)); protocol {
	case protocolGRPC, "":
		exporter, err = otlptracegrpc.New(ctx)
	case protocolHTTP:
		exporter, err = otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("%s or %s is %q: choose %s or %s",
			envTracesProtocol, envProtocol, protocol, protocolGRPC, protocolHTTP)
	}
	if err != nil {
		// err is dropped: it may quote a secret from the environment.
		return nil, errors.New("the OTLP exporter for traces cannot be made: check the variables OTEL_EXPORTER_OTLP_*")
	}
	return exporter, nil
}
