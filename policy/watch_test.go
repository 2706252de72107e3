package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

func TestParseWatch(t *testing.T) {
	const streaming = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	for query, want := range map[string]WatchOptions{
		"watch=true": {},
		"watch=1":    {},
		"watch=TRUE": {},
		"resourceVersion=5&watch=True&allowWatchBookmarks=True&timeoutSeconds=5":   {Bookmarks: true, Timeout: 5 * time.Second}, // Python
		"watch=True&sendInitialEvents=False&allowWatchBookmarks=False":             {SendInitialEvents: "false"},
		"watch=true&limit=5&pretty=true&timeout=7s":                                {},
		streaming + "&allowWatchBookmarks=true":                                    {SendInitialEvents: "true", Bookmarks: true},
		"watch=1&allowWatchBookmarks=false":                                        {},
		"watch=true&timeoutSeconds=0":                                              {},
		"watch=true&timeoutSeconds=344":                                            {Timeout: 344 * time.Second},
		"watch=true&resourceVersion=5&labelSelector=a%3Db&sendInitialEvents=false": {SendInitialEvents: "false"},
	} {
		r := read(t, get("/api/v1/pods?"+query, alice))
		got, why := parse(r)
		if why != "" || !got.Watch {
			t.Errorf("%s: forwarded: %q, a watch: %t", query, why, got.Watch)
		}
		if diff := cmp.Diff(want, got.WatchOptions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	for _, query := range []string{
		"watch=true&continue=x", "watch=true&timeoutSeconds=", "watch=true&timeoutSeconds=-1", "watch=true&timeoutSeconds=86401",
		"watch=true&timeoutSeconds=99999999999999", "watch=true&allowWatchBookmarks=yes", "watch=true&sendInitialEvents=no",
		"watch=true&sendInitialEvents=", "watch=true&limit=x", "watch=true&timeout=abc", "watch=true&shardSelector=x",
		"watch=true&timeoutSeconds=5&timeoutSeconds=5",
	} {
		r := read(t, get("/api/v1/pods?"+query, alice))
		if got, why := parse(r); why != reason.NotCanonical || !got.Watch {
			t.Errorf("%s: %q, a watch: %t", query, why, got.Watch)
		}
	}
}

// TestWatchAccept: the events of a watch hold single objects, and a clause may say that it is about
// a stream.
func TestWatchAccept(t *testing.T) {
	const metadata = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	for accept, want := range map[string]struct{ builtin, custom media.Representation }{
		"":                                       {media.JSON, media.JSON},
		"application/json;stream=watch":          {media.JSON, media.JSON},
		"application/json" + metadata:            {media.MetadataJSON, media.MetadataJSON},
		media.ProtobufType + ";stream=watch":     {media.Protobuf, ""},
		media.ProtobufType + ",application/json": {media.Protobuf, media.JSON},
		media.ProtobufType + metadata:            {media.MetadataProtobuf, media.MetadataProtobuf},
		"application/json;stream=other":          {"", ""},
		"application/yaml,application/json":      {"", ""},
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1": {"", ""},
		"application/json;as=Table;g=meta.k8s.io;v=v1,application/json":    {"", ""},
	} {
		var values []string
		if accept != "" {
			values = []string{accept}
		}
		parsed := parseAccept(values, true)
		builtin, _ := parsed.Representation(false)
		custom, _ := parsed.Representation(true)
		if builtin != want.builtin || custom != want.custom {
			t.Errorf("%s: %q and %q, want %q and %q", accept, builtin, custom, want.builtin, want.custom)
		}
	}
}

// TestWatchOptionsLikeTheUpstream: every combination of the parameters is served only if
// kube-apiserver takes it, with what its defaults make of it.
func TestWatchOptionsLikeTheUpstream(t *testing.T) {
	for _, rv := range versions {
		for _, match := range matches {
			for _, initial := range []string{"", "true", "false"} {
				got := decideWatch(ListOptions{ResourceVersion: rv, ResourceVersionMatch: match}, WatchOptions{SendInitialEvents: initial})
				o := internalversion.ListOptions{Watch: true, ResourceVersion: rv, ResourceVersionMatch: metav1.ResourceVersionMatch(match)}
				if initial != "" {
					o.SendInitialEvents = new(initial == "true")
				}
				internalversion.SetListOptionsDefaults(&o, true)
				refused := len(validation.ValidateListOptions(&o, true)) > 0
				_, canonical := parseDecimal(rv)
				if serves := !refused && (rv == "" || canonical); got.Serve != serves {
					t.Errorf("resourceVersion=%q match=%q sendInitialEvents=%q: %+v, upstream refuses it: %t", rv, match, initial, got, refused)
					continue
				}
				if !got.Serve {
					continue
				}
				if want := o.SendInitialEvents != nil && *o.SendInitialEvents; got.Initial != want {
					t.Errorf("resourceVersion=%q match=%q sendInitialEvents=%q: begins with the state %t, want %t", rv, match, initial, got.Initial, want)
				}
				semantics := map[string]Semantics{"": MostRecent, "0": Any, "5000": After}[rv]
				if rv == "5000" && got.Initial {
					semantics = NotOlderThan
				}
				if got.Semantics != semantics {
					t.Errorf("resourceVersion=%q match=%q sendInitialEvents=%q: %s, want %s", rv, match, initial, got.Semantics, semantics)
				}
			}
		}
	}
}
