package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// sample is the number of objects that are read to estimate the size of all.
const sample = 20

// initialLimit is the page size of a paginated initial load. For every page, kube-apiserver 1.36
// walks all objects that come after it, so small pages are expensive.
const initialLimit = 2000

// learnFirstTimeout bounds how long the feed, which reads nothing else meanwhile, learns from a first object.
const learnFirstTimeout = 5 * time.Second

// learnTries is how often the feed tries to see an object, which changes, the same in a list and in a watch.
const learnTries = 5

// learned is what a feed has learned before it loads.
type learned struct {
	envelope *wire.Envelope
	// count is the number of objects, mean how many bytes one has; both are estimated from the
	// first few.
	count, mean int64
	// framed reports whether the event of the first object has the bytes that listproxy would write.
	framed bool
}

// pageSize is the number of objects that a page of an initial load has, so that a page has about 32 MiB: its
// bytes are counted only after it was read.
func (l learned) pageSize() int64 {
	const bytes, least = 32 << 20, 50
	return max(least, min(initialLimit, bytes/max(1, l.mean)))
}

// learn makes the envelope of the collection's lists, from a list of few objects and one of none,
// and the form of its items, from the first as a watch sends it.
func (f *feed) learn(ctx context.Context) (learned, error) {
	none, err := f.learnFields(ctx)
	if err != nil {
		return learned{}, err
	}
	e := f.source.Encoding()
	for range learnTries {
		// An API server that knows shards repeats the selector in the list; others ignore the parameter. 1.37
		// does not count what remains after a page of a shard.
		l, err := f.source.List(ctx, "", url.Values{"limit": {strconv.Itoa(sample)}, "shardSelector": {wire.AllShards}})
		sharded := err == nil && l.Meta.Shards == wire.AllShards
		if sharded && l.Meta.Continue != "" && !l.Meta.HasRemaining {
			l, err = f.source.List(ctx, "", url.Values{"limit": {strconv.Itoa(sample)}})
		}
		if err != nil {
			return learned{}, err
		}
		envelope, err := f.envelopeOf(ctx, l, none)
		if err != nil {
			return learned{}, err
		}
		if envelope.Sharded = sharded; sharded {
			envelope.Paths = envelope.Paths.WithUID()
		}
		n := int64(len(l.Items))
		if n == 0 {
			return learned{envelope: envelope}, nil
		}
		ev, err := f.sameInWatch(ctx, l.Items[0])
		if err != nil {
			return learned{}, err
		}
		if ev.Object == nil {
			continue
		}
		envelope.Item, err = wire.LearnItem(e, l.Items[0], ev)
		mean := int64(len(l.Body))/n + index.ObjectOverhead
		return learned{envelope: envelope, count: n + l.Meta.Remaining, mean: mean, framed: ev.Framed}, err
	}
	return learned{}, errors.New("the first object changes too often to be seen in a list and in a watch at the same revision")
}

// envelopeOf makes the envelope of a list. What this list does not show is as in another envelope.
func (f *feed) envelopeOf(ctx context.Context, l source.List, other *wire.Envelope) (*wire.Envelope, error) {
	envelope, _, err := wire.LearnEnvelope(f.source.Encoding(), l.Body, l.Header.Get("Content-Type"), other.EmptyItems)
	if err != nil {
		return nil, err
	}
	envelope.Namespaces, envelope.Paths, envelope.Sharded = other.Namespaces, other.Paths, other.Sharded
	envelope.Headers, err = f.source.Headers(ctx, l)
	envelope.AuditIDs = len(l.Header.Values("Audit-Id"))
	return envelope, err
}

// learnFirst learns the form of items from the first object of a collection that was empty: from an
// event of the stream, and a list of that object at exactly the event's revision. Those who follow
// the collection notice nothing. After errObject the state must be loaded again, with the form.
func (f *feed) learnFirst(ctx context.Context, ev wire.Event) error {
	if f.envelope.Item.Known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, learnFirstTimeout)
	defer cancel()
	query := source.Exactly(ev.Meta.Revision)
	query.Set("fieldSelector", source.Named(ev.Meta.Name))
	l, err := f.source.Insist(ctx, ev.Meta.Namespace, query)
	if err != nil {
		return fmt.Errorf("%w: %w", errObject, err)
	}
	envelope, err := f.envelopeOf(ctx, l, f.envelope)
	if err != nil {
		return fmt.Errorf("%w: %w", errObject, err)
	}
	if len(l.Items) != 1 || !f.envelope.AgreesWith(envelope) {
		return errObject // it was deleted, or lists are written in another way by now
	}
	if envelope.Item, err = wire.LearnItem(f.source.Encoding(), l.Items[0], ev); err != nil {
		return err
	}
	f.envelope = envelope
	f.collection.setEnvelope(envelope)
	return nil
}

// learnFields finds out which fields the upstream accepts in a selector: an older one knows
// fewer. It returns the envelope of the empty list with which the upstream answers.
func (f *feed) learnFields(ctx context.Context) (*wire.Envelope, error) {
	var all []wire.Field
	if f.fields != nil && !f.source.Resource.Representation.IsMetadata() {
		var err error
		if all, err = f.fields(ctx); err != nil {
			return nil, err
		}
	}
	names := []string{wire.NamespaceField}
	for _, field := range all {
		names = append(names, field.Name)
	}
	ctx = source.With(ctx, source.ForLearn)
	namespaces := true
	empty, _, err := f.source.Probe(ctx, names...)
	if source.Answered(err, http.StatusBadRequest) {
		// The upstream does not know one of them. There are few, so each is asked for by itself.
		var accepted []wire.Field
		for i, name := range names {
			_, _, err := f.source.Probe(ctx, name)
			switch {
			case err != nil && !source.Answered(err, http.StatusBadRequest):
				return nil, err
			case i == 0:
				namespaces = err == nil
			case err == nil:
				accepted = append(accepted, all[i-1])
			}
		}
		all = accepted
		empty, _, err = f.source.Probe(ctx)
	}
	if err != nil {
		return nil, err
	}
	envelope, _, err := wire.LearnEnvelope(f.source.Encoding(), empty, "", "")
	if err != nil {
		return nil, err
	}
	envelope.Namespaces, envelope.Paths = namespaces, wire.NewFieldPaths(all)
	return envelope, nil
}

// sameInWatch returns the event with which a watch sends an object of a list, at the same revision; no event if none
// does.
func (f *feed) sameInWatch(ctx context.Context, item []byte) (wire.Event, error) {
	ctx, cancel := context.WithTimeout(source.With(ctx, source.ForLearn), source.AnswerTimeout)
	defer cancel()
	m, err := f.source.Encoding().Item(item)
	if err != nil {
		return wire.Event{}, fmt.Errorf("%w: %w", wire.ErrForm, err)
	}
	if m.Revision == 0 {
		return wire.Event{}, fmt.Errorf("%w: an object without resourceVersion", wire.ErrForm)
	}
	// From 0, the upstream begins with the object as it is now. If that is already newer than in the
	// list, the event that made the listed version is recent, and the watch from just before it can
	// still send it.
	for _, from := range []uint64{0, m.Revision - 1} {
		ev, err := f.seenFrom(ctx, m, from)
		if err != nil || ev.Object != nil {
			return ev, err
		}
	}
	return wire.Event{}, nil
}

// seenFrom returns the object of that revision from a watch that begins after another, or no
// event if the watch does not have it.
func (f *feed) seenFrom(ctx context.Context, m wire.ObjectMeta, from uint64) (wire.Event, error) {
	s, err := f.source.Watch(ctx, m.Namespace, url.Values{
		"resourceVersion": {strconv.FormatUint(from, 10)},
		"fieldSelector":   {source.Named(m.Name)},
	}, freshness.ShortWatch)
	if source.Answered(err, http.StatusGone) {
		return wire.Event{}, nil
	}
	if err != nil {
		return wire.Event{}, err
	}
	defer s.Stop()
	for ev := range s.Events {
		switch {
		case ev.Meta.Revision == m.Revision && (ev.Kind == wire.Added || ev.Kind == wire.Modified):
			return ev, nil
		case ev.Meta.Revision >= m.Revision:
			return wire.Event{}, nil
		}
	}
	return wire.Event{}, nil
}
