package admin

import (
	"maps"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
)

func registerWatches(meter metric.Meter, read func() []snapshot.CollectionStats) error {
	i := &instruments{meter: meter}
	open := i.gauge("listproxy.watches", "{watch}", "Watches that are answered from memory now, streaming lists among them.")
	events := i.counter("listproxy.watch.events", "{event}",
		"Events of watches from memory, bookmarks included and initial events not, each counted for every client that got it.")
	ended := i.counter("listproxy.watch.ends", "{watch}", "Watches from memory that have ended, and why (reason).")
	behind := i.gauge("listproxy.watch.behind", "{change}", "How many changes the slowest client has yet to get or to skip.")
	return i.read(func(o metric.Observer) {
		for _, s := range read() {
			which := []attribute.KeyValue{
				observe.LabelResource.String(s.Resource.GroupResource().String()),
				observe.LabelVersion.String(s.Resource.Version),
				observe.LabelRepresentation.String(string(s.Resource.Representation)),
			}
			set := metric.WithAttributeSet(attribute.NewSet(which...))
			o.ObserveInt64(open, s.Watches.Open, set)
			o.ObserveInt64(events, int64(s.Watches.Delivered), set) // #nosec G115 -- a count
			o.ObserveInt64(behind, int64(s.Watches.Behind), set)
			for _, why := range slices.Sorted(maps.Keys(s.Watches.Ended)) {
				o.ObserveInt64(ended, int64(s.Watches.Ended[why]), // #nosec G115 -- a count
					metric.WithAttributeSet(attribute.NewSet(append(slices.Clone(which), observe.LabelReason.String(string(why)))...)))
			}
		}
	})
}
