package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/listproxy/listproxy/policy/reason"
)

const (
	goodStart = "ns-1/pod-7\x00"
	tooLarge  = "9223372036854775808" // MaxInt64 + 1
)

// The values of resourceVersion and resourceVersionMatch that are combined.
var (
	testedVersions = []string{"", "0", "5000", "00", "-1", "x", tooLarge}
	testedMatches  = []string{"", "NotOlderThan", "Exact", "Bogus"}
)

// TestDecideListAgreesWithUpstream: for every combination of options, decideList agrees with the API server's own code.
func TestDecideListAgreesWithUpstream(t *testing.T) {
	for _, match := range testedMatches {
		for _, version := range testedVersions {
			for _, token := range []string{"", upstreamToken(t, goodStart, 4711), upstreamToken(t, goodStart, -1), "not a token"} {
				for _, limit := range []int64{0, 3} {
					checkList(t, ListOptions{ResourceVersion: version, ResourceVersionMatch: match, Continue: token, Limit: limit})
				}
			}
		}
	}
}

// checkList requires that decideList serves a list if and only if the API server accepts it, its options are spelled
// canonically, and it names a revision (ConsistentNone forwards the others). The API server validates options twice: in its
// handlers (422), and in its storage (400). Revision, start and semantics must be those that the storage reads. LimitHonoured
// differs from LimitIgnored only at resourceVersion=0, where it keeps the limit.
func checkList(t *testing.T, o ListOptions) {
	t.Helper()
	const watchList = true // the feature
	refused := len(validation.ValidateListOptions(&internalversion.ListOptions{
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(o.ResourceVersionMatch),
		Continue:             o.Continue,
		Limit:                o.Limit,
	}, watchList)) > 0
	readRevision, startKey, storageErr := storage.ValidateListOptions("/pods/", storage.APIObjectVersioner{}, storage.ListOptions{
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(o.ResourceVersionMatch),
		Predicate:            storage.SelectionPredicate{Continue: o.Continue, Limit: o.Limit},
		Recursive:            true,
	})
	revision, canonical := parseDecimal(o.ResourceVersion)
	badVersion := o.ResourceVersion != "" && !canonical
	bothGiven := o.ResourceVersion != "" && o.Continue != ""
	_, tokenRevision, validToken := DecodeContinue(o.Continue) // tokenRevision is -1 for the newest state
	badToken := o.Continue != "" && !validToken
	want := Decision{Revision: uint64(readRevision), Limit: o.Limit}
	// A list without a revision is forwarded as consistent before the storage's validation.
	switch {
	case refused, badVersion, bothGiven, badToken:
		want = forward(reason.NotCanonical)
	case o.ResourceVersion == "" && tokenRevision <= 0:
		want = forwardConsistent()
	case storageErr != nil:
		want = forward(reason.NotCanonical)
	case o.Continue != "":
		want.Semantics = Continue
		want.Start = strings.TrimPrefix(startKey, "/pods/")
	case readRevision != 0:
		want.Semantics = Exact
	case revision == 0:
		want.Semantics = Any
	default:
		want.Semantics = NotOlderThan
		want.Revision = revision
	}
	wantIgnored := want
	if want.Semantics == Any {
		wantIgnored.Limit = 0
	}
	check := func(atZero LimitAtZero, want Decision) {
		t.Helper()
		if diff := cmp.Diff(want, decideList(o, atZero, ConsistentNone)); diff != "" {
			t.Errorf("%+v, limit at 0 %s (-want +got):\n%s", o, atZero, diff)
		}
	}
	check(LimitIgnored, wantIgnored)
	check(LimitHonoured, want)
}
