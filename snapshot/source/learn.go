package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Learned is the form in which the upstream writes a resource, and an estimate of its size.
type Learned struct {
	Envelope *wire.Envelope
	// Count is the number of objects, and Mean the mean number of bytes of one. Both are estimated from the first few.
	Count, Mean int64
	// Reproducible reports whether listproxy would write the event of the first object with the same bytes.
	Reproducible bool
}

// sample is the number of objects that are read to estimate the size of all.
const sample = 20

// learnTries is the number of times that [Source.Learn] tries to see an object at one revision in a list and in a
// watch.
const learnTries = 5

// Learn learns the envelope of lists from a list of a few objects and from one of none. It learns the form of items
// from the first object in that list, and in a watch. fields returns the fields that a selector may name, if the
// upstream accepts them.
func (s *Source) Learn(ctx context.Context, fields func(context.Context) ([]wire.Field, error)) (Learned, error) {
	none, err := s.learnFields(ctx, fields)
	if err != nil {
		return Learned{}, err
	}
	e := s.Encoding()
	for range learnTries {
		// An API server that knows shards repeats the selector in the list; others ignore the parameter. 1.37 does not
		// count what remains after a page of a shard, so the page is read again without shards.
		l, err := s.List(ctx, "", url.Values{"limit": {strconv.Itoa(sample)}, "shardSelector": {wire.AllShards}})
		sharded := err == nil && l.Meta.Shards == wire.AllShards
		if sharded && l.Meta.Continue != "" && !l.Meta.HasRemaining {
			l, err = s.List(ctx, "", url.Values{"limit": {strconv.Itoa(sample)}})
		}
		if err != nil {
			return Learned{}, err
		}
		envelope, err := s.EnvelopeOf(ctx, l, none)
		if err != nil {
			return Learned{}, err
		}
		if envelope.Sharded = sharded; sharded {
			envelope.Paths = envelope.Paths.WithUID()
		}
		n := int64(len(l.Items))
		if n == 0 {
			return Learned{Envelope: envelope}, nil
		}
		ev, err := s.findInWatch(ctx, l.Items[0])
		if err != nil {
			return Learned{}, err
		}
		if ev.Object == nil {
			continue
		}
		envelope.Item, err = wire.LearnItem(e, l.Items[0], ev)
		mean := int64(len(l.Body))/n + index.ObjectOverhead
		return Learned{Envelope: envelope, Count: n + l.Meta.Remaining, Mean: mean, Reproducible: ev.Reproducible}, err
	}
	return Learned{}, errors.New("the first object changes too often to be seen in a list and in a watch at the same revision")
}

// EnvelopeOf returns the envelope of a list. What a list with objects does not show is taken from another envelope.
func (s *Source) EnvelopeOf(ctx context.Context, l List, other *wire.Envelope) (*wire.Envelope, error) {
	envelope, _, err := wire.LearnEnvelope(s.Encoding(), l.Body, l.Header.Get("Content-Type"), other.EmptyItems)
	if err != nil {
		return nil, err
	}
	envelope.HasNamespaceField, envelope.Paths, envelope.Sharded = other.HasNamespaceField, other.Paths, other.Sharded
	envelope.Headers, err = s.Headers(ctx, l)
	return envelope, err
}

// learnFields learns which fields the upstream accepts in a selector: an older one knows fewer. It asks for all in one
// list, which is empty, and returns the envelope of that.
func (s *Source) learnFields(ctx context.Context, fields func(context.Context) ([]wire.Field, error)) (*wire.Envelope, error) {
	var all []wire.Field
	if fields != nil && !s.Resource.Representation.IsMetadata() {
		var err error
		if all, err = fields(ctx); err != nil {
			return nil, err
		}
	}
	names := []string{wire.NamespaceField}
	for _, field := range all {
		names = append(names, field.Name)
	}
	ctx = With(ctx, ForLearn)
	namespaces := true
	empty, _, err := s.Probe(ctx, names...)
	if Answered(err, http.StatusBadRequest) {
		// The upstream does not know one of them. They are few, so it is asked for each of them.
		var accepted []wire.Field
		for i, name := range names {
			_, _, err := s.Probe(ctx, name)
			switch {
			case err != nil && !Answered(err, http.StatusBadRequest):
				return nil, err
			case i == 0:
				namespaces = err == nil
			case err == nil:
				accepted = append(accepted, all[i-1])
			}
		}
		all = accepted
		empty, _, err = s.Probe(ctx)
	}
	if err != nil {
		return nil, err
	}
	envelope, _, err := wire.LearnEnvelope(s.Encoding(), empty, "", "")
	if err != nil {
		return nil, err
	}
	envelope.HasNamespaceField, envelope.Paths = namespaces, wire.NewFieldPaths(all)
	return envelope, nil
}

// findInWatch returns the event with which a watch sends an object of a list, at the same revision. It returns the zero
// Event if no watch sends that revision.
func (s *Source) findInWatch(ctx context.Context, item []byte) (wire.Event, error) {
	ctx, cancel := context.WithTimeout(With(ctx, ForLearn), AnswerTimeout)
	defer cancel()
	m, err := s.Encoding().Item(item)
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
		ev, err := s.findInWatchFrom(ctx, m, from)
		if err != nil || ev.Object != nil {
			return ev, err
		}
	}
	return wire.Event{}, nil
}

// findInWatchFrom is findInWatch for one watch, which begins after the revision from.
func (s *Source) findInWatchFrom(ctx context.Context, m wire.ObjectMeta, from uint64) (wire.Event, error) {
	stream, err := s.Watch(ctx, m.Namespace, url.Values{
		"resourceVersion": {strconv.FormatUint(from, 10)},
		"fieldSelector":   {Named(m.Name)},
	}, ShortWatch)
	if Answered(err, http.StatusGone) {
		return wire.Event{}, nil
	}
	if err != nil {
		return wire.Event{}, err
	}
	defer stream.Stop()
	for ev := range stream.Events {
		switch {
		case ev.Meta.Revision == m.Revision && (ev.Type == wire.Added || ev.Type == wire.Modified):
			return ev, nil
		case ev.Meta.Revision >= m.Revision:
			return wire.Event{}, nil
		}
	}
	return wire.Event{}, nil
}
