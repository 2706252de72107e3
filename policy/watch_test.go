package policy

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/policy/reason"
)

// TestDecideWatchAgreesWithUpstream: for every combination of revision, match and initial events, decideWatch agrees with the API
// server's own code.
func TestDecideWatchAgreesWithUpstream(t *testing.T) {
	for _, version := range testedVersions {
		for _, match := range testedMatches {
			for _, initial := range []string{"", "true", "false"} {
				checkWatch(t, ListOptions{ResourceVersion: version, ResourceVersionMatch: match}, WatchOptions{SendInitialEvents: initial})
			}
		}
	}
}

// checkWatch requires that decideWatch serves a watch exactly if kube-apiserver accepts the options, and the revision has its
// canonical spelling. The semantics must be those of the options after kube-apiserver has set their defaults (which turn initial
// events on for resourceVersion="" and "0").
func checkWatch(t *testing.T, list ListOptions, watch WatchOptions) {
	t.Helper()
	upstream := internalversion.ListOptions{
		Watch: true, ResourceVersion: list.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatch(list.ResourceVersionMatch),
	}
	if watch.SendInitialEvents != "" {
		upstream.SendInitialEvents = new(watch.SendInitialEvents == "true")
	}
	internalversion.SetListOptionsDefaults(&upstream, true)
	refused := len(validation.ValidateListOptions(&upstream, true)) > 0
	revision, canonical := parseDecimal(list.ResourceVersion)
	got := decideWatch(list, watch)
	served := got.Reason == reason.None
	if wantServed := !refused && (list.ResourceVersion == "" || canonical); served != wantServed || !wantServed {
		if served != wantServed {
			t.Errorf("%+v, %+v: got %+v, want it served: %t", list, watch, got, wantServed)
		}
		return
	}
	initial := upstream.SendInitialEvents != nil && *upstream.SendInitialEvents
	want := Decision{Semantics: After, Revision: revision, Initial: initial}
	switch {
	case list.ResourceVersion == "":
		want.Semantics = Consistent
	case revision == 0:
		want.Semantics = Any
	case initial:
		want.Semantics = NotOlderThan
	}
	if got != want {
		t.Errorf("%+v, %+v: got %+v, want %+v", list, watch, got, want)
	}
}
