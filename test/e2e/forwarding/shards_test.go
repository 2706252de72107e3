package forwarding

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestShards asks for halves of a resource, by the hash of a field, where the API server knows such
// lists (ShardedListAndWatch, alpha since 1.36), which it says with metadata.shardInfo: they come from
// memory. Metadata has no shardInfo, and neither have custom resources: these are forwarded.
func TestShards(t *testing.T) {
	harness.Long(t)
	if !isSince("1.36") {
		t.Skip("the API server has no sharded lists")
	}
	const maps, objects = "/api/v1/namespaces/" + controlplane.TeamA + "/configmaps", 20
	widgets := kinds.Kind{APIVersion: "shards.test/v1", Name: "Widget", Plural: "widgets"}
	b := startBeside(t, "--feature-gates=ShardedListAndWatch=true", func(b beside) {
		for i := range objects {
			b.create(t, maps, kinds.Kind{APIVersion: "v1", Name: "ConfigMap"}.Object(fmt.Sprint("map-", i)))
		}
		b.create(t, kinds.Definitions, widgets.Definition())
		poll.Until(t, patience, "a custom resource", func() bool {
			_, err := b.server.Do(t.Context(), http.MethodPost, widgets.Path(controlplane.TeamA), widgets.Object("widget"))
			return err == nil
		})
	}, "--eager", "configmaps", "--eager", "configmaps/protobuf", "--consistent-lists=always", "--watches")
	revision := b.whole(t, maps, objects)

	told := map[string]int{}
	for _, selector := range []string{
		"shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x8000000000000000', '0xc000000000000000') || shardRange(object.metadata.uid,'0xc000000000000000','0x10000000000000000')",
		"shardRange(object.metadata.namespace, '0x0000000000000000', '0x10000000000000000')",
	} {
		sharded := maps + "?" + url.Values{"shardSelector": {selector}}.Encode()
		for _, form := range []struct{ selector, version string }{
			{},
			{version: "&" + ask.AnyVersion},
			{version: "&" + ask.Exactly(revision)},
			{version: "&" + ask.NotOlderThan(revision)},
			{selector: "&labelSelector=a%21%3Db"},
			{selector: "&fieldSelector=metadata.name%3Dmap-3"},
		} {
			for _, as := range []string{ask.JSON, asProtobuf} {
				b.remembered(t, as, sharded+form.selector, form.version)
			}
			b.forwarded(t, asMetadata, sharded+form.selector+form.version)
		}
		b.forwarded(t, ask.JSON, strings.Replace(sharded, maps, widgets.Path(controlplane.TeamA), 1)+"&"+ask.AnyVersion)
		b.forwarded(t, ask.JSON, sharded+"&limit=3") // what remains is counted in two ways
		b.forwarded(t, asProtobuf, sharded+"&limit=3&"+ask.Exactly(revision))
		list, err := ask.ReadList(ask.JSON, b.remembered(t, ask.JSON, sharded, "").Body)
		expect.NoError(t, err)
		if strings.Contains(selector, "uid") {
			for _, object := range list.Objects {
				told[object.Name]++
			}
		}
		b.followShard(t, sharded, len(list.Objects))
		b.followShardSince(t, sharded, list.Revision, maps, list.Objects)
	}
	for name, times := range told {
		if times != 1 {
			t.Errorf("%s is in %d halves", name, times)
		}
	}
	if len(told) < objects {
		t.Errorf("only %d are in one of the halves", len(told))
	}
	b.forwarded(t, ask.JSON, maps+"?shardSelector=x") // which is malformed
	b.forwarded(t, ask.JSON, maps+"?fieldSelector=object.metadata.uid%3Dx")
	b.whole(t, maps, objects)
}

// remembered requires that a list of a version comes from memory, with the bytes that the API server
// writes of the same at exactly its revision.
func (b beside) remembered(t *testing.T, as, target, version string) (got ask.Answer) {
	t.Helper()
	poll.Until(t, patience, "an answer from memory", func() bool {
		got = b.get(t, b.proxy, as, target+version)
		return got.FromMemory()
	})
	list, err := ask.ReadList(as, got.Body)
	expect.NoError(t, err)
	want := b.get(t, b.server, as, target+"&"+ask.Exactly(list.Revision))
	if d := cmp.Diff(string(want.Body), string(got.Body)); d != "" || got.Code != want.Code {
		t.Errorf("%s%s: %d, not %d (-direct +via):\n%s", target, version, got.Code, want.Code, d)
	}
	return got
}

// followShard compares a streaming list of a half, with so many objects, up to its end.
func (b beside) followShard(t *testing.T, sharded string, objects int) {
	t.Helper()
	watch := sharded + "&" + ask.StreamingList
	want, _ := b.initialEvents(t, b.server, watch)
	got, from := b.initialEvents(t, b.proxy, watch)
	if !strings.Contains(from, "hit") {
		t.Errorf("the streaming list has Cache-Status %q", from)
	}
	if len(want) != objects+1 || len(got) != objects+1 {
		t.Fatalf("%d events directly and %d through listproxy, of %d objects", len(want), len(got), objects)
	}
	// The bookmark at the end says how far the API server is.
	if d := cmp.Diff(want[:objects], got[:objects]); d != "" {
		t.Errorf("(-direct +via):\n%s", d)
	}
}

// followShardSince compares a watch of a half from a revision, since which all its objects change.
func (b beside) followShardSince(t *testing.T, sharded string, since uint64, maps string, objects []ask.Identity) {
	t.Helper()
	for _, object := range objects {
		if _, err := b.server.Do(t.Context(), http.MethodPatch, maps+"/"+object.Name, kinds.Touch(fmt.Sprint(since))); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	follow := func(from *ask.Client) (events []string, source string) {
		res, err := from.Open(ctx, http.MethodGet, fmt.Sprintf("%s&watch=true&resourceVersion=%d", sharded, since), nil)
		expect.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		next := eventsOf(res)
		for range objects {
			event, err := next()
			expect.NoError(t, err)
			events = append(events, event)
		}
		return events, res.Header.Get(cacheStatus)
	}
	want, _ := follow(b.server)
	got, from := follow(b.proxy)
	if !strings.Contains(from, "hit") {
		t.Errorf("the watch has Cache-Status %q", from)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("a watch since %d (-direct +via):\n%s", since, d)
	}
}

// beside is an API server of a test's own, and a listproxy in front of it.
type beside struct{ server, proxy *ask.Client }

// startBeside starts both. What is written by prepare is there when listproxy starts.
func startBeside(t *testing.T, serverArg string, prepare func(beside), proxyArgs ...string) (b beside) {
	t.Helper()
	plane := harness.RunControlPlane(t, controlplane.Options{APIServerArgs: []string{serverArg}})
	admin := plane.RESTConfig(controlplane.Admin)
	b.server = ask.MustNew(t, admin, patience)
	prepare(b)
	p := harness.RunProxy(t, harness.ProxyOptions{Upstream: plane.RESTConfig(controlplane.Feed), Args: proxyArgs})
	b.proxy = ask.MustNew(t, p.RESTConfig(admin), patience)
	return b
}

// create makes an object, straight at the API server.
func (b beside) create(t *testing.T, target string, object any) {
	t.Helper()
	if _, err := b.server.Do(t.Context(), http.MethodPost, target, object); err != nil {
		t.Fatal(err)
	}
}

func (b beside) get(t *testing.T, from *ask.Client, as, target string) ask.Answer {
	t.Helper()
	answer, err := from.GetAs(t.Context(), as, target)
	expect.NoError(t, err)
	return answer
}

// forwarded requires that a list is forwarded, and answered as the API server answers it when asked
// directly. Its newest state may change between two lists.
func (b beside) forwarded(t *testing.T, as, target string) {
	t.Helper()
	poll.Until(t, patience, "two answers of the API server alike", func() bool {
		before := b.get(t, b.server, as, target)
		got := b.get(t, b.proxy, as, target)
		after := b.get(t, b.server, as, target)
		if !bytes.Equal(before.Body, after.Body) || strings.Contains(got.Source(), "detail=warming") {
			return false
		}
		wantForwarded(t, reply{cacheStatus: got.Source()}, "not-canonical")
		if d := cmp.Diff(string(before.Body), string(got.Body)); d != "" || got.Code != before.Code {
			t.Errorf("%s: %d, not %d (-direct +via):\n%s", target, got.Code, before.Code, d)
		}
		return true
	})
}

// whole requires that a list comes from memory, with so many objects, and with the API server's bytes.
// It returns its revision.
func (b beside) whole(t *testing.T, target string, objects int) uint64 {
	t.Helper()
	var got ask.Answer
	poll.Until(t, patience, "the whole from memory", func() bool {
		got = b.get(t, b.proxy, ask.JSON, target)
		return got.FromMemory() && bytes.Count(got.Body, []byte(`"uid"`)) >= objects
	})
	revision, err := got.Revision()
	expect.NoError(t, err)
	want := b.get(t, b.server, ask.JSON, target+"?"+ask.Exactly(revision))
	if d := cmp.Diff(string(want.Body), string(got.Body)); d != "" {
		t.Errorf("the whole (-direct +via):\n%s", d)
	}
	return revision
}

// initialEvents are those of a streaming list. It says from where it came, too.
func (b beside) initialEvents(t *testing.T, from *ask.Client, target string) (events []string, source string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := from.Open(ctx, http.MethodGet, target, nil)
	expect.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	return initialEvents(t, eventsOf(res)), res.Header.Get(cacheStatus)
}
