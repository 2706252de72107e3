package admin

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/listproxy/listproxy/proxy/upstream"
)

const (
	// labelState is how the API server is.
	labelState = attribute.Key("state")
	// labelLogin is what listproxy logs in with.
	labelLogin = attribute.Key("login")
)

func registerUpstream(meter metric.Meter, read func() upstream.HealthStats) error {
	i := &instruments{meter: meter}
	ok := i.gauge("listproxy.upstream.ok", "{upstream}",
		"1 if the API server answers listproxy's own account as it should, else 0 and what is wrong (state).")
	answered := i.seconds("listproxy.upstream.answered.timestamp",
		"When the API server last answered a check, even with an error, in Unix time.")
	from := i.seconds("listproxy.login.not_before.timestamp",
		"When the token or client certificate with which listproxy logs in at the API server was issued, in Unix time.")
	until := i.seconds("listproxy.login.not_after.timestamp",
		"When the token or client certificate with which listproxy logs in at the API server ends, in Unix time.")
	return i.read(func(o metric.Observer) {
		s := read()
		value := int64(0)
		if s.Condition == upstream.ConditionOK {
			value = 1
		}
		o.ObserveInt64(ok, value, metric.WithAttributeSet(attribute.NewSet(labelState.String(string(s.Condition)))))
		if !s.Answered.IsZero() {
			o.ObserveFloat64(answered, float64(s.Answered.UnixMilli())/1000)
		}
		for _, login := range s.Logins {
			set := metric.WithAttributeSet(attribute.NewSet(labelLogin.String(login.Kind)))
			o.ObserveFloat64(until, float64(login.Until.Unix()), set)
			if !login.From.IsZero() {
				o.ObserveFloat64(from, float64(login.From.Unix()), set)
			}
		}
	})
}
