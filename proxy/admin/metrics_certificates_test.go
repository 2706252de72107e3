package admin

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/expect"
)

// TestExpiriesAreMeasured: where there is no certificate there is no series.
func TestExpiriesAreMeasured(t *testing.T) {
	end := time.Now().Add(time.Hour)
	metrics, err := telemetry.NewMetrics(resource.Empty())
	expect.NoError(t, err)
	expect.NoError(t, RegisterState(metrics, State{Certificates: func() []certs.Expiry { return []certs.Expiry{{Name: "serving", NotAfter: end}, {Name: "none"}} }}))
	family := proxytest.Gather(t, metrics)["listproxy_certificate_not_after_timestamp_seconds"].GetMetric()
	if len(family) != 1 || int64(family[0].GetGauge().GetValue()) != end.Unix() {
		t.Errorf("counted as %v", family)
	}
}
