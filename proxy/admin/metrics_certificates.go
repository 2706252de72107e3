package admin

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/observe"
)

func registerCertificates(meter metric.Meter, read func() []certs.Expiry) error {
	i := &instruments{meter: meter}
	ends := i.seconds("listproxy.certificate.not_after.timestamp",
		"When a certificate in use ends, in Unix time; for a chain or a file with several CAs, the first to end.")
	return i.read(func(o metric.Observer) {
		for _, c := range read() {
			if !c.NotAfter.IsZero() {
				o.ObserveFloat64(ends, float64(c.NotAfter.Unix()), metric.WithAttributeSet(attribute.NewSet(observe.LabelCertificate.String(c.Name))))
			}
		}
	})
}
