package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Learned says in which form the upstream writes a resource, and about how large the resource is.
type Learned struct {
	// Envelope says how the upstream writes lists: all bytes around the objects. It also has the fields that selectors may
	// name.
	Envelope *wire.Envelope
	// Count is an estimate of the number of objects.
	Count int64
	// Mean is an estimate of the mean size of an object in memory, in bytes.
	Mean int64
	// Reproducible reports whether listproxy would write the first object's watch event with the same bytes as the upstream.
	Reproducible bool
}

// sampleSize is the number of objects that are read to estimate the mean size.
const sampleSize = 20

// learnTries is how often [Source.Learn] tries to see an object in a list and in a watch at the same revision.
const learnTries = 5

// Learn sends requests to learn how the upstream writes the collection:
//
//	request                       function        learns
//	an empty list                 learnEmptyList  the fields that selectors may name, and the form of an empty list
//	a list of sampleSize objects  learnSample     the envelope, the number of objects, and their mean size
//	a watch of the first object   findInWatch     how an object differs in a list and in an event (see [wire.ItemForm]), and
//	                                              whether listproxy can write events
//
// If the first object changes between the list and the watch, Learn repeats both. If there are no objects, Learn sends no
// watch, and the ItemForm stays unknown.
//
// candidates returns the fields that the upstream may accept in a selector.
func (s *Source) Learn(ctx context.Context, candidates fieldsFunc) (Learned, error) {
	empty, err := s.learnEmptyList(ctx, candidates)
	if err != nil {
		return Learned{}, err
	}
	for range learnTries {
		learned, done, err := s.learnSample(ctx, empty)
		if done || err != nil {
			return learned, err
		}
	}
	return Learned{}, errors.New("the first object changes too often to be seen in a list and in a watch at the same revision")
}

// fieldsFunc returns fields that a selector may name, besides the name and the namespace.
type fieldsFunc func(context.Context) ([]wire.Field, error)

// learnEmptyList lists an object that does not exist. It returns the envelope of this empty list, with the fields that the
// upstream accepts in a selector, but without content type and headers.
func (s *Source) learnEmptyList(ctx context.Context, candidates fieldsFunc) (*wire.Envelope, error) {
	all := []wire.Field{{Name: wire.NamespaceField}}
	if !s.Collection.Representation.IsMetadata() {
		selectable, err := candidates(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, selectable...)
	}
	emptyList, accepted, err := s.probeFields(WithPurpose(ctx, ForLearn), all)
	if err != nil {
		return nil, err
	}
	const noContentType, noEmptyItems = "", ""
	envelope, err := wire.LearnEnvelope(s.Encoding(), emptyList, noContentType, noEmptyItems)
	if err != nil {
		return nil, err
	}
	isNamespace := func(field wire.Field) bool { return field.Name == wire.NamespaceField }
	envelope.HasNamespaceField = slices.ContainsFunc(accepted, isNamespace)
	envelope.Paths = wire.NewFieldPaths(slices.DeleteFunc(accepted, isNamespace))
	return envelope, nil
}

// probeFields reads an empty list. It also returns those candidates that the upstream accepts in a selector: older API servers
// accept fewer fields.
func (s *Source) probeFields(ctx context.Context, candidates []wire.Field) (emptyList []byte, accepted []wire.Field, err error) {
	emptyList, _, err = s.Probe(ctx, candidates...)
	if !Answered(err, http.StatusBadRequest) {
		return emptyList, candidates, err
	}
	// The upstream does not accept at least one of the fields. There are few, so each is tried by itself.
	for _, field := range candidates {
		_, _, err := s.Probe(ctx, field)
		switch {
		case err == nil:
			accepted = append(accepted, field)
		case !Answered(err, http.StatusBadRequest):
			return nil, nil, err
		}
	}
	emptyList, _, err = s.Probe(ctx)
	return emptyList, accepted, err
}

// learnSample learns from a list of a few objects, and from a watch of the first of them. empty is the envelope of an empty
// list. done is false if the first object changed before a watch sent it: then the caller should try again.
func (s *Source) learnSample(ctx context.Context, empty *wire.Envelope) (learned Learned, done bool, err error) {
	sample, sharded, err := s.listSample(ctx)
	if err != nil {
		return Learned{}, false, err
	}
	envelope, err := s.EnvelopeOf(ctx, sample, empty)
	if err != nil {
		return Learned{}, false, err
	}
	envelope.Sharded = sharded
	if sharded {
		envelope.Paths = envelope.Paths.WithUID() // A shard selector selects objects by the hash of their UID.
	}
	if len(sample.Items) == 0 { // There is no object to look for in a watch, and no need to try again.
		return Learned{Envelope: envelope}, true, nil
	}
	first := sample.Items[0]
	ev, found, err := s.findInWatch(ctx, first)
	if err != nil || !found {
		return Learned{}, false, err
	}
	if envelope.ItemForm, err = wire.LearnItem(s.Encoding(), first, ev); err != nil {
		return Learned{}, false, err
	}
	return Learned{
		Envelope:     envelope,
		Count:        int64(len(sample.Items)) + sample.Meta.Remaining,
		Mean:         int64(len(sample.Body)/len(sample.Items)) + index.ObjectOverhead,
		Reproducible: ev.Reproducible,
	}, true, nil
}

// listSample lists the first sampleSize objects. sharded reports whether the upstream supports shard selectors. To learn that,
// the request selects all shards: an API server that knows shard selectors repeats the selector in the list, and an older one
// ignores it.
func (s *Source) listSample(ctx context.Context) (sample ListResponse, sharded bool, err error) {
	limit := strconv.Itoa(sampleSize)
	sample, err = s.List(ctx, "", url.Values{"limit": {limit}, "shardSelector": {wire.AllShards}})
	if err != nil {
		return ListResponse{}, false, err
	}
	sharded = sample.Meta.Shards == wire.AllShards
	lacksCount := sample.Meta.Continue != "" && sample.Meta.Remaining == 0
	if sharded && lacksCount {
		// Kubernetes 1.37 counts the objects after a page only if there is no shard selector.
		sample, err = s.List(ctx, "", url.Values{"limit": {limit}})
	}
	return sample, sharded, err
}

// findInWatch opens watches to find an item of a list in an event: the same object at the same revision. found is false if no
// watch sends such an event.
func (s *Source) findInWatch(ctx context.Context, item []byte) (ev wire.Event, found bool, err error) {
	ctx, cancel := context.WithTimeout(WithPurpose(ctx, ForLearn), AnswerTimeout)
	defer cancel()
	meta, err := s.Encoding().ParseItem(item)
	if err != nil {
		return wire.Event{}, false, fmt.Errorf("%w: %w", wire.ErrForm, err)
	}
	if meta.Revision == 0 {
		return wire.Event{}, false, fmt.Errorf("%w: an object without resourceVersion", wire.ErrForm)
	}
	// A watch from resourceVersion 0 begins with the object as it is now. If the object has changed since the list, a watch
	// from the revision before the listed one may still send the object as it was listed.
	for _, from := range []uint64{0, meta.Revision - 1} {
		ev, found, err = s.findInWatchFrom(ctx, meta, from)
		if err != nil || found {
			return ev, found, err
		}
	}
	return wire.Event{}, false, nil
}

// findInWatchFrom opens one watch from a revision, and looks in it for the event of the object with the metadata meta.
func (s *Source) findInWatchFrom(ctx context.Context, meta wire.ObjectMeta, from uint64) (ev wire.Event, found bool, err error) {
	stream, err := s.Watch(ctx, meta.Namespace, url.Values{
		"resourceVersion": {strconv.FormatUint(from, 10)},
		"fieldSelector":   {NameSelector(meta.Name)},
	}, ShortWatch)
	if Answered(err, http.StatusGone) { // The upstream has forgotten the event.
		return wire.Event{}, false, nil
	}
	if err != nil {
		return wire.Event{}, false, err
	}
	defer stream.Stop()
	for ev := range stream.Events {
		switch {
		case ev.Meta.Revision == meta.Revision && (ev.Type == wire.Added || ev.Type == wire.Modified):
			return ev, true, nil
		case ev.Meta.Revision >= meta.Revision: // The object was deleted, or is newer.
			return wire.Event{}, false, nil
		}
	}
	return wire.Event{}, false, nil // The watch ended or broke without the event, and Learn tries again.
}

// EnvelopeOf returns the envelope of a list. A list does not show everything, for example not the fields that selectors may
// name. The rest is copied from known, the envelope of another list of the same collection.
func (s *Source) EnvelopeOf(ctx context.Context, list ListResponse, known *wire.Envelope) (*wire.Envelope, error) {
	envelope, err := wire.LearnEnvelope(s.Encoding(), list.Body, list.Header.Get("Content-Type"), known.EmptyItems)
	if err != nil {
		return nil, err
	}
	envelope.HasNamespaceField = known.HasNamespaceField
	envelope.Paths = known.Paths
	envelope.Sharded = known.Sharded
	envelope.Headers, err = s.Headers(ctx, list)
	return envelope, err
}
