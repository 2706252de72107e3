package forwarding

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// sharded is an API server that knows sharded lists, and a listproxy in front of it.
type sharded struct {
	*testing.T
	direct, via *ask.Client
}

// TestShards asks for halves of a resource, by the hash of a field, where the API server knows such
// lists (ShardedListAndWatch, alpha since 1.36), which it says with metadata.shardInfo: they come from
// memory. Metadata has no shardInfo, and neither have custom resources: these are forwarded.
func TestShards(t *testing.T) {
	harness.Long(t)
	if !version.MustParseGeneric(cp.Version()).AtLeast(version.MustParseGeneric("1.36")) {
		t.Skip("the API server has no sharded lists")
	}
	const maps, objects = "/api/v1/namespaces/" + controlplane.TeamA + "/configmaps", 20
	widgets := kinds.Kind{APIVersion: "shards.test/v1", Name: "Widget", Plural: "widgets"}
	plane := harness.RunControlPlane(t, controlplane.Options{APIServerArgs: []string{"--feature-gates=ShardedListAndWatch=true"}})
	s := sharded{T: t, direct: ask.MustNew(t, plane.RESTConfig(controlplane.Admin), patience)}
	for i := range objects {
		_, err := s.direct.Do(t.Context(), http.MethodPost, maps, kinds.Kind{APIVersion: "v1", Name: "ConfigMap"}.Object(fmt.Sprint("map-", i)))
		expect.NoError(t, err)
	}
	_, err := s.direct.Do(t.Context(), http.MethodPost, kinds.Definitions, widgets.Definition())
	expect.NoError(t, err)
	poll.Until(t, patience, "a custom resource", func() bool {
		_, err := s.direct.Do(t.Context(), http.MethodPost, widgets.Path(controlplane.TeamA), widgets.Object("widget"))
		return err == nil
	})
	p := harness.RunProxy(t, harness.ProxyOptions{Upstream: plane.RESTConfig(controlplane.Feed), Args: []string{
		"--eager", "configmaps", "--eager", "configmaps/protobuf", "--consistent-lists=always", "--watches",
	}})
	s.via = ask.MustNew(t, p.RESTConfig(plane.RESTConfig(controlplane.Admin)), patience)
	revision := s.fromMemory(ask.JSON, maps+"?labelSelector=", "").Revision

	for _, selector := range []string{
		"shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x8000000000000000', '0xc000000000000000') || shardRange(object.metadata.uid,'0xc000000000000000','0x10000000000000000')",
		"shardRange(object.metadata.namespace, '0x0000000000000000', '0x10000000000000000')",
	} {
		half := maps + "?" + url.Values{"shardSelector": {selector}}.Encode()
		for _, form := range []struct{ selector, version string }{
			{},
			{version: "&" + ask.AnyVersion},
			{version: "&" + ask.Exactly(revision)},
			{version: "&" + ask.NotOlderThan(revision)},
			{selector: "&labelSelector=a%21%3Db"},
			{selector: "&fieldSelector=metadata.name%3Dmap-3"},
		} {
			for _, as := range []string{ask.JSON, ask.Protobuf} {
				s.fromMemory(as, half+form.selector, form.version)
			}
			s.forwarded(ask.Metadata, half+form.selector+form.version)
		}
		s.forwarded(ask.JSON, strings.Replace(half, maps, widgets.Path(controlplane.TeamA), 1)+"&"+ask.AnyVersion)
		s.forwarded(ask.JSON, half+"&limit=3") // what remains is counted in two ways
		s.forwarded(ask.Protobuf, half+"&limit=3&"+ask.Exactly(revision))
		list := s.fromMemory(ask.JSON, half, "")
		// Only what is in this half changes, and after the list.
		for _, object := range list.Objects {
			_, err := s.direct.Do(t.Context(), http.MethodPatch, maps+"/"+object.Name, kinds.Touch(selector))
			expect.NoError(t, err)
		}
		since := fmt.Sprintf("%s&watch=true&resourceVersion=%d", half, list.Revision)
		s.follow(since, len(list.Objects))
		s.follow(half+"&"+ask.StreamingList, len(list.Objects)+1) // the bookmark says that these are all
	}
	s.forwarded(ask.JSON, maps+"?shardSelector=x") // which is malformed
	s.forwarded(ask.JSON, maps+"?fieldSelector=object.metadata.uid%3Dx")
}

// fromMemory requires that a list of a version comes from memory, with the bytes that the API server
// writes of the same at exactly its revision.
func (s sharded) fromMemory(as, target, version string) ask.List {
	s.Helper()
	got := getUntil(s.T, target+version+" from memory", s.via.With("Accept", as), target+version, ask.Answer.FromMemory)
	list, err := ask.ReadList(got.Body)
	expect.NoError(s, err)
	want := get(s.T, s.direct.With("Accept", as), target+"&"+ask.Exactly(list.Revision))
	expect.Same(s, string(want.Body), string(got.Body))
	return list
}

// forwarded requires that a list is forwarded, and answered as the API server answers it when asked
// directly. Its newest state may change between two lists.
func (s sharded) forwarded(as, target string) {
	s.Helper()
	direct := s.direct.With("Accept", as)
	var before ask.Answer
	after := get(s.T, direct, target)
	got := getUntil(s.T, "two answers of the API server alike", s.via.With("Accept", as), target, func(got ask.Answer) bool {
		before, after = after, get(s.T, direct, target)
		return string(before.Body) == string(after.Body) && !strings.Contains(got.Source(), "detail=warming")
	})
	if !strings.HasSuffix(got.Source(), "; detail=not-canonical") || got.Code != before.Code {
		s.Errorf("%s: %d, not %d, %s", target, got.Code, before.Code, got.Source())
	}
	expect.Same(s, string(before.Body), string(got.Body))
}

// follow compares the first events of a watch.
func (s sharded) follow(target string, count int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	first := func(from *ask.Client) (told []string, hit bool) {
		res, err := from.Open(ctx, http.MethodGet, target, nil)
		expect.NoError(s, err)
		defer func() { _ = res.Body.Close() }()
		for in := events.NewReader(res.Body, res.Header.Get("Content-Type")); len(told) < count; {
			event, err := in.Frame()
			expect.NoError(s, err)
			told = append(told, ownRevision.ReplaceAllString(string(event), `$1"resourceVersion":"~"`))
		}
		return told, ask.FromMemory(res.Header)
	}
	want, _ := first(s.direct)
	got, hit := first(s.via)
	expect.Same(s, want, got)
	if !hit {
		s.Errorf("%s did not come from memory", target)
	}
}
