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

// Learned is the form in which the upstream writes a resource, and an estimate of the resource's size.
type Learned struct {
	Envelope *wire.Envelope
	// Count is the number of objects, and Mean the mean size of an object in bytes. Both are estimated from the first few
	// objects.
	Count, Mean int64
	// Reproducible reports whether listproxy would write the event of the first object with the same bytes.
	Reproducible bool
}

const (
	// sampleSize is the number of objects that are read to estimate the size of all.
	sampleSize = 20
	// learnTries is the number of times that [Source.Learn] tries to see an object at one revision in a list and in a
	// watch.
	learnTries = 5
)

// Learn learns the envelope of lists from a list of a few objects and from an empty list. It learns the form of items by
// comparing the first object in the list with the same object in a watch. fields returns the fields that a selector may
// name, if the upstream accepts them.
func (s *Source) Learn(ctx context.Context, fields func(context.Context) ([]wire.Field, error)) (Learned, error) {
	empty, err := s.learnFields(ctx, fields)
	if err != nil {
		return Learned{}, err
	}
	for range learnTries {
		l, sharded, err := s.sample(ctx)
		if err != nil {
			return Learned{}, err
		}
		envelope, err := s.EnvelopeOf(ctx, l, empty)
		if err != nil {
			return Learned{}, err
		}
		envelope.Sharded = sharded
		if sharded {
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
			continue // the object has changed since it was listed
		}
		envelope.Item, err = wire.LearnItem(s.Encoding(), l.Items[0], ev)
		mean := int64(len(l.Body))/n + index.ObjectOverhead
		return Learned{Envelope: envelope, Count: n + l.Meta.Remaining, Mean: mean, Reproducible: ev.Reproducible}, err
	}
	return Learned{}, errors.New("the first object changes too often to be seen in a list and in a watch at the same revision")
}

// sample lists the first few objects. It reports whether the upstream knows shards: such an API server repeats the shard
// selector in the list, others ignore the parameter.
func (s *Source) sample(ctx context.Context) (l List, sharded bool, err error) {
	limit := strconv.Itoa(sampleSize)
	l, err = s.List(ctx, "", url.Values{"limit": {limit}, "shardSelector": {wire.AllShards}})
	if err != nil {
		return List{}, false, err
	}
	sharded = l.Meta.Shards == wire.AllShards
	if sharded && l.Meta.Continue != "" && !l.Meta.HasRemaining {
		// 1.37 does not count what remains after a page of a shard, so the page is read again without shards.
		l, err = s.List(ctx, "", url.Values{"limit": {limit}})
	}
	return l, sharded, err
}

// EnvelopeOf returns the envelope of a list with objects. What such a list does not show is copied from other.
func (s *Source) EnvelopeOf(ctx context.Context, l List, other *wire.Envelope) (*wire.Envelope, error) {
	envelope, _, err := wire.LearnEnvelope(s.Encoding(), l.Body, l.Header.Get("Content-Type"), other.EmptyItems)
	if err != nil {
		return nil, err
	}
	envelope.HasNamespaceField = other.HasNamespaceField
	envelope.Paths = other.Paths
	envelope.Sharded = other.Sharded
	envelope.Headers, err = s.Headers(ctx, l)
	return envelope, err
}

// learnFields learns which fields the upstream accepts in a selector: older API servers know fewer. It returns the envelope
// of the empty list that selects by all of them.
func (s *Source) learnFields(ctx context.Context, fields func(context.Context) ([]wire.Field, error)) (*wire.Envelope, error) {
	var accepted []wire.Field
	if !s.Resource.Representation.IsMetadata() {
		var err error
		if accepted, err = fields(ctx); err != nil {
			return nil, err
		}
	}
	names := []string{wire.NamespaceField}
	for _, field := range accepted {
		names = append(names, field.Name)
	}
	ctx = With(ctx, ForLearn)
	acceptsNamespace := true
	body, _, err := s.Probe(ctx, names...)
	if Answered(err, http.StatusBadRequest) {
		// The upstream does not know one of the fields. They are few, so it is asked for each of them.
		if acceptsNamespace, err = s.acceptsField(ctx, wire.NamespaceField); err != nil {
			return nil, err
		}
		all := accepted
		accepted = nil
		for _, field := range all {
			ok, err := s.acceptsField(ctx, field.Name)
			if err != nil {
				return nil, err
			}
			if ok {
				accepted = append(accepted, field)
			}
		}
		body, _, err = s.Probe(ctx)
	}
	if err != nil {
		return nil, err
	}
	envelope, _, err := wire.LearnEnvelope(s.Encoding(), body, "", "")
	if err != nil {
		return nil, err
	}
	envelope.HasNamespaceField = acceptsNamespace
	envelope.Paths = wire.NewFieldPaths(accepted)
	return envelope, nil
}

// acceptsField reports whether the upstream accepts a field in a selector.
func (s *Source) acceptsField(ctx context.Context, name string) (bool, error) {
	_, _, err := s.Probe(ctx, name)
	if Answered(err, http.StatusBadRequest) {
		return false, nil
	}
	return err == nil, err
}

// findInWatch returns the event with which a watch sends an item of a list, at the same revision; the zero Event if no watch
// sends that revision.
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
	// A watch from 0 begins with the object as it is now. If the object is newer by now than in the list, its event at the
	// listed revision is recent, and a watch from just before that revision can still send the event.
	for _, from := range []uint64{0, m.Revision - 1} {
		ev, err := s.findInWatchFrom(ctx, m, from)
		if err != nil || ev.Object != nil {
			return ev, err
		}
	}
	return wire.Event{}, nil
}

// findInWatchFrom is findInWatch for one watch, which begins after the revision from. m is the metadata of the item.
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
