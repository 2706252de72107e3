package policy

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkWatchWithUpstream requires that decideWatch serves a watch exactly if kube-apiserver accepts the options, and the
// revision has its canonical spelling. The watch must then have the semantics after kube-apiserver's defaulting.
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
	revision, canonical := parseDecimal(options.ResourceVersion)
	wantServe := !refused && (options.ResourceVersion == "" || canonical)
	if got.Serve != wantServe {
		t.Errorf("%+v, %+v: got %+v, want it served: %t", options, ofWatch, got, wantServe)
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
		t.Errorf("%+v, %+v: got %+v, want %+v", options, ofWatch, got, want)
	}
}

// TestDecideWatch: for every combination of revision, match and initial events, decideWatch agrees with the API server's
// own code.
func TestDecideWatch(t *testing.T) {
	for _, rv := range versions {
		for _, match := range matches {
			for _, initial := range []string{"", "true", "false"} {
				checkWatchWithUpstream(t, ListOptions{ResourceVersion: rv, ResourceVersionMatch: match}, WatchOptions{SendInitialEvents: initial})
			}
		}
	}
}
