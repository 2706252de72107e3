package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy/reason"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Schemas follows the definitions of custom resources. After one changed the upstream may write
// the same objects in other bytes, without any event about them; and for a moment its old
// watches go on with the old schema. So custom resources are answered from memory only while the
// stream of their definitions is up. It follows metadata only: a change of a
// CustomResourceDefinition shows as another resourceVersion. It is safe for concurrent use.
type Schemas struct {
	client metadata.Interface
	// definitions reads whole ones, one at a time.
	definitions dynamic.ResourceInterface
	changed     func(schema.GroupResource)
	heard       heard
	log         *slog.Logger

	mu sync.Mutex
	// known are the definitions, by name; nil until they were listed.
	known map[string]definition
	// refused: the definitions may not be read.
	refused bool
	// open: there is a stream. up: what was missed before it is known, too.
	open, up bool
}

// newSchemas returns Schemas that call changed whenever a definition appeared, changed or went.
// It knows nothing until run runs.
func newSchemas(cfg *rest.Config, changed func(schema.GroupResource), log *slog.Logger) (*Schemas, error) {
	client, err := clientOf(cfg, 0, metadata.NewForConfigAndClient)
	if err != nil {
		return nil, fmt.Errorf("cannot watch CustomResourceDefinitions: %w", err)
	}
	reader, err := clientOf(cfg, discoveryTimeout, dynamic.NewForConfigAndClient)
	if err != nil {
		return nil, fmt.Errorf("cannot read CustomResourceDefinitions: %w", err)
	}
	return &Schemas{client: client, definitions: reader.Resource(definitions), changed: changed, log: log}, nil
}

// run follows the definitions until ctx ends.
func (s *Schemas) run(ctx context.Context) {
	listWatch := listWatchOf(s.client.Resource(definitions))
	tellStreams(listWatch, s.opened, s.lost)
	follower{
		name:         definitions.Resource,
		listWatch:    listWatch,
		expectedType: &metav1.PartialObjectMetadata{},
		store:        s.store(),
		heard:        &s.heard,
		// Custom resources are not answered from memory without it.
		soon:    true,
		lists:   true,
		log:     s.log,
		ended:   s.ended,
		refusal: "CustomResourceDefinitions may not be watched: custom resources are not answered from memory",
		grant:   "list and watch on customresourcedefinitions.apiextensions.k8s.io",
	}.follow(ctx)
}

// Ready says whether the definitions are known, or cannot be known: before that a change could go
// unnoticed.
func (s *Schemas) Ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readyLocked()
}

func (s *Schemas) readyLocked() bool { return s.known != nil || s.refused }

// vouchLocked says whether a change of a definition would be noticed now: there is a stream that
// began with a list, and it has sent something lately.
func (s *Schemas) vouchLocked() bool {
	return s.known != nil && s.up && s.heard.within(streamSilence)
}

// Check returns the reason if the definitions forbid to answer a resource from memory now: they are
// not known yet, or a change would not be noticed. Or they and the APIService disagree whether it
// is a custom resource, which is written differently (the APIService was made again, or before the
// definition).
func (s *Schemas) Check(gr schema.GroupResource, entry Entry) reason.Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.readyLocked():
		return reason.Warming
	case entry.Custom && !s.vouchLocked(), !entry.Aggregated && !s.agreeLocked(gr, entry.Custom):
		return reason.Schema
	}
	return ""
}

// agreeLocked says whether the definitions, if they are known, say the same about a resource: that
// one of them defines it, or none.
func (s *Schemas) agreeLocked(gr schema.GroupResource, custom bool) bool {
	_, defined := s.known[gr.String()]
	return s.known == nil || defined == custom
}

// opened notes that a stream was opened, and whether it follows what was just read.
func (s *Schemas) opened(follows bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open, s.up = true, follows
}

// lost notes that there is no stream.
func (s *Schemas) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open, s.up = false, false
}

func (s *Schemas) ended(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open, s.up = false, false
	s.refused = isRefused(err)
}

// definition identifies one version of a CustomResourceDefinition, by uid and resourceVersion. The
// generation would not do: it counts changes of the spec, but the names in the status matter, too.
type definition struct {
	uid      types.UID
	revision string
}

// store returns the store of what follows the definitions.
func (s *Schemas) store() store[string, definition] {
	return store[string, definition]{
		read: definitionOf, known: &s.known, mu: &s.mu, heard: &s.heard,
		also:    func(list bool, _ string) { s.refused = s.refused && !list },
		changed: s.take,
	}
}

// take reports what changed. The first list only shows what there is. If a list came by a stream,
// that is followed now, unless it has ended already; a plain list is read while there is no stream.
func (s *Schemas) take(c change[string, definition]) {
	if !c.first {
		maps.Copy(c.was, c.is)
		for name := range c.was {
			s.report(name)
		}
	}
	if c.list {
		s.mu.Lock()
		s.up = s.open
		s.mu.Unlock()
	}
}

// report tells which resource a definition is about: its name is plural.group.
func (s *Schemas) report(name string) {
	resource, group, _ := strings.Cut(name, ".")
	s.changed(schema.GroupResource{Group: group, Resource: resource})
}

func definitionOf(obj any) (string, definition, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", definition{}, fmt.Errorf("a CustomResourceDefinition without metadata: %w", err)
	}
	return m.GetName(), definition{uid: m.GetUID(), revision: m.GetResourceVersion()}, nil
}
