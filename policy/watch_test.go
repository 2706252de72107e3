package policy

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkWatchWithUpstream: a watch is served exactly if kube-apiserver takes its options and they are written
// plainly, with what its defaults make of them.
func checkWatchWithUpstream(t *testing.T, options ListOptions, ofWatch WatchOptions) {
	t.Helper()
	got := decideWatch(options, ofWatch)
	o := internalversion.ListOptions{
		Watch: true, ResourceVersion: options.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatch(options.ResourceVersionMatch),
	}
	if ofWatch.SendInitialEvents != "" {
		o.SendInitialEvents = new(ofWatch.SendInitialEvents == "true")
	}
	internalversion.SetListOptionsDefaults(&o, true)
	refused := len(validation.ValidateListOptions(&o, true)) > 0
	revision, plain := parseDecimal(options.ResourceVersion)
	if serves := !refused && (options.ResourceVersion == "" || plain); got.Serve != serves {
		t.Errorf("%+v, %+v: %+v, upstream refuses it: %t", options, ofWatch, got, refused)
	}
	if !got.Serve {
		return
	}
	want := Decision{Serve: true, Semantics: After, Revision: revision, Initial: o.SendInitialEvents != nil && *o.SendInitialEvents}
	switch {
	case options.ResourceVersion == "":
		want.Semantics = Consistent
	case revision == 0:
		want.Semantics = Any
	case want.Initial:
		want.Semantics = NotOlderThan
	}
	if got != want {
		t.Errorf("%+v, %+v: %+v, want %+v", options, ofWatch, got, want)
	}
}

// TestDecideWatch: every combination of revision, match and initial events is decided as the upstream decides it.
func TestDecideWatch(t *testing.T) {
	for _, rv := range versions {
		for _, match := range matches {
			for _, initial := range []string{"", "true", "false"} {
				checkWatchWithUpstream(t, ListOptions{ResourceVersion: rv, ResourceVersionMatch: match}, WatchOptions{SendInitialEvents: initial})
			}
		}
	}
}
