package telemetry

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
)

// serviceName is the service's name in traces and metrics, unless OTEL_SERVICE_NAME or
// OTEL_RESOURCE_ATTRIBUTES give another.
const serviceName = "listproxy"

// NewResource says which process traces and metrics come from: its name, its version, and an ID of
// its own. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add to these, and take precedence.
func NewResource(ctx context.Context, version string) (*resource.Resource, error) {
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			semconv.ServiceName(serviceName),
			semconv.ServiceVersion(version),
			semconv.ServiceInstanceID(uuid.NewString()),
		),
		resource.WithFromEnv(), // last: the later counts
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES cannot be read, write key=value,key=value: %w", err)
	}
	return res, nil
}
