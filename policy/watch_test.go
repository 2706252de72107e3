package policy

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/policy/reason"
)

// TestDecideWatchAgreesWithUpstream: for every combination of revision, match and initial events, decideWatch agrees with the
// API server's own code.
func TestDecideWatchAgreesWithUpstream(t *testing.T) {
	for _, version := range testedVersions {
		for _, match := range testedMatches {
			for _, initial := range []string{"", "true", "false"} {
				checkWatch(t, ListOptions{ResourceVersion: version, ResourceVersionMatch: match}, WatchOptions{SendInitialEvents: initial})
			}
		}
	}
}

// checkWatch requires that decideWatch answers a watch from memory if and only if kube-apiserver accepts the options, and the
// resourceVersion is spelled canonically. The decision must follow from the options after kube-apiserver has set its default:
// sendInitialEvents is true if it is not given, and resourceVersion is "" or "0".
func checkWatch(t *testing.T, list ListOptions, watch WatchOptions) {
	t.Helper()
	// What kube-apiserver reads and says.
	const watchList = true // the feature WatchList is on
	upstream := internalversion.ListOptions{Watch: true, ResourceVersion: list.ResourceVersion}
	upstream.ResourceVersionMatch = metav1.ResourceVersionMatch(list.ResourceVersionMatch)
	if watch.SendInitialEvents != "" {
		upstream.SendInitialEvents = new(watch.SendInitialEvents == "true")
	}
	internalversion.SetListOptionsDefaults(&upstream, watchList)
	isRefused := len(validation.ValidateListOptions(&upstream, watchList)) > 0

	// Whether decideWatch forwards the watch.
	revision, isDecimal := parseDecimal(list.ResourceVersion)
	isBadVersion := list.ResourceVersion != "" && !isDecimal
	got := decideWatch(list, watch)
	if isRefused || isBadVersion {
		if got.Reason == reason.None {
			t.Errorf("%+v, %+v: got %+v, want a reason to forward", list, watch, got)
		}
		return
	}

	// The decision that follows.
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
