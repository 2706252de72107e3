package main

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pageSize is client-go's.
const pageSize = 500

// present asks everything that the demo has to show, and fills the report.
func (s *scene) present(ctx context.Context, r *report) error {
	before, err := s.state(ctx)
	if err != nil {
		return err
	}
	say(s.out, "asking both\n")
	if err := r.compare(ctx, s.readings(before.revision)...); err != nil {
		return err
	}
	created, err := s.writeAndWatch(ctx, r)
	if err != nil {
		return err
	}
	if err := s.rewrite(ctx, before.pods); err != nil {
		return err
	}
	say(s.out, "asking both again\n")
	return r.compare(ctx, s.afterwards(before.revision, created)...)
}

// state is what listproxy holds at a moment.
type state struct {
	revision string
	pods     []metav1.ObjectMeta
}

// state waits until listproxy answers from memory with all pods that there are, and returns what it
// says.
func (s *scene) state(ctx context.Context) (state, error) {
	newest, err := s.admin.direct.Get(ctx, pods+"?limit=1")
	if err != nil {
		return state{}, err
	}
	var page metav1.PartialObjectMetadataList
	if err := json.Unmarshal(newest.Body, &page); err != nil {
		return state{}, fmt.Errorf("decode a page of pods: %w", err)
	}
	q := question{who: s.admin, path: pods, query: "resourceVersionMatch=NotOlderThan&resourceVersion=" + page.ResourceVersion, memory: true}
	if err := q.settle(ctx); err != nil {
		return state{}, err
	}
	a, err := s.admin.proxied.Get(ctx, pods+"?"+q.query)
	if err != nil {
		return state{}, err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(a.Body, &list); err != nil {
		return state{}, fmt.Errorf("decode the pods: %w", err)
	}
	st := state{revision: list.ResourceVersion}
	for _, item := range list.Items {
		st.pods = append(st.pods, item.ObjectMeta)
	}
	return st, nil
}

// readings are asked while nothing changes.
func (s *scene) readings(revision string) []question {
	const anyVersion = "resourceVersion=0"
	exact := "resourceVersion=" + revision + "&resourceVersionMatch=Exact"
	return []question{
		{what: "all pods, any version", who: s.admin, path: pods, query: anyVersion, memory: true},
		{what: "the same, gzip", who: s.admin, path: pods, query: anyVersion, zipped: true, memory: true},
		{what: "the same, protobuf", who: s.admin, path: pods, query: anyVersion, accept: typedClients, memory: true},
		{what: "the same, metadata only", who: s.admin, path: pods, query: anyVersion, accept: metadataClients, memory: true},
		{what: "one namespace, any version", who: s.admin, path: podsIn("shop"), query: anyVersion, memory: true},
		{what: "all pods, 500 a page", who: s.admin, path: pods, query: exact, limit: pageSize, memory: true},
		{what: "all pods, by label", who: s.admin, path: pods, query: anyVersion + "&labelSelector=tier%3Dcache", memory: true},
		{what: "all pods of a node", who: s.admin, path: pods, query: anyVersion + "&fieldSelector=spec.nodeName%3Dnode-0001", memory: true},
		{what: "custom resources, any version", who: s.admin, path: databases, query: anyVersion, memory: true},
		{what: "alice, her namespace", who: s.alice, path: podsIn("team-a"), query: anyVersion, memory: true},
		{what: "alice, all pods (she may not)", who: s.alice, path: pods, query: anyVersion},
		{what: "one namespace, most recent", who: s.admin, path: podsIn("shop"), query: ""},
	}
}

// afterwards is asked after writes, about the time before and after them.
func (s *scene) afterwards(before string, created written) []question {
	return []question{
		{
			what: "all pods, not older than the write", who: s.admin, path: pods,
			query:  "resourceVersion=" + created.revision + "&resourceVersionMatch=NotOlderThan",
			memory: true, name: created.name,
		},
		{
			what: "all pods, as before the writes", who: s.admin, path: pods,
			query: "resourceVersion=" + before + "&resourceVersionMatch=Exact", memory: true,
		},
	}
}
