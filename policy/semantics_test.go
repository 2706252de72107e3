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

// goodStart is the start key of a good continue token.
const goodStart = "ns-1/pod-7\x00"

// The values of resourceVersion and resourceVersionMatch that are combined.
var (
	testedVersions = []string{"", "0", "5000", "00", "-1", "x", "9223372036854775808"} // the last is MaxInt64 + 1
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
// canonically, and it names a revision. (ConsistentNone forwards a list without one.) The API server validates options twice: in
// its handlers (422), and in its storage (400). Revision, start and semantics must be those that the storage reads. LimitHonoured
// differs from LimitIgnored only at resourceVersion=0, where it keeps the limit.
func checkList(t *testing.T, o ListOptions) {
	t.Helper()
	const watchList = true // the feature
	isRefused := len(validation.ValidateListOptions(&internalversion.ListOptions{
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
	revision, isDecimal := parseDecimal(o.ResourceVersion)
	isBadVersion := o.ResourceVersion != "" && !isDecimal
	areBothGiven := o.ResourceVersion != "" && o.Continue != ""
	_, tokenRevision, isCanonical := DecodeContinue(o.Continue) // tokenRevision is -1 for the newest state
	isBadToken := o.Continue != "" && !isCanonical
	want := Decision{Revision: uint64(readRevision), Limit: o.Limit}
	switch { // the first case that applies
	case isRefused, isBadVersion, areBothGiven, isBadToken:
		want = forward(reason.NotCanonical)
	case o.ResourceVersion == "" && tokenRevision <= 0: // decideList asks for no revision, so storageErr does not matter
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
	for atZero, want := range map[LimitAtZero]Decision{LimitIgnored: wantIgnored, LimitHonoured: want} {
		if diff := cmp.Diff(want, decideList(o, atZero, ConsistentNone)); diff != "" {
			t.Errorf("%+v, limit at 0 %s (-want +got):\n%s", o, atZero, diff)
		}
	}
}
