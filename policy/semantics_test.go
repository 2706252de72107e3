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

// TestDecideListAgreesWithUpstream: for every combination of the options below, decideList agrees with the API server's own
// code.
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

// checkList compares decideList, with ConsistentNone, with the API server's own code. decideList must answer the list from
// memory if and only if all these conditions hold:
//
//   - The API server accepts the options, in its handlers (else 422) and in its storage (else 400).
//   - The resourceVersion and the token are spelled canonically, and only one of them is given.
//   - The list does not ask for the newest state, which ConsistentNone forwards.
//
// The decision must have the semantics, the revision and the start key that the API server's storage reads. The only difference
// between LimitIgnored and LimitHonoured must be that with LimitIgnored, a list at resourceVersion=0 has no limit.
func checkList(t *testing.T, o ListOptions) {
	t.Helper()
	// What the API server's handlers say.
	const watchList = true // the feature WatchList is on
	isRefused := len(validation.ValidateListOptions(&internalversion.ListOptions{
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(o.ResourceVersionMatch),
		Continue:             o.Continue,
		Limit:                o.Limit,
	}, watchList)) > 0
	// What the API server's storage says. exactRevision is the revision at which it must read, or 0 if it may choose a
	// revision.
	exactRevision, startKey, storageErr := storage.ValidateListOptions("/pods/", storage.APIObjectVersioner{}, storage.ListOptions{
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(o.ResourceVersionMatch),
		Predicate:            storage.SelectionPredicate{Continue: o.Continue, Limit: o.Limit},
		Recursive:            true,
	})
	// How the options are spelled.
	lowestRevision, isDecimal := parseDecimal(o.ResourceVersion)
	_, tokenRevision, isCanonical := DecodeContinue(o.Continue)
	hasVersion, hasToken := o.ResourceVersion != "", o.Continue != ""
	isBadVersion := hasVersion && !isDecimal
	isBadToken := hasToken && !isCanonical
	isTokenOfNewest := hasToken && tokenRevision < 0
	asksForNewest := !hasVersion && (!hasToken || isTokenOfNewest)

	// The decision that follows.
	want := Decision{Revision: uint64(exactRevision), Limit: o.Limit}
	switch { // the first case that applies
	case isRefused, isBadVersion, isBadToken, hasVersion && hasToken:
		want = forward(reason.NotCanonical)
	case asksForNewest: // forwarded even if storageErr is not nil
		want = forwardConsistent()
	case storageErr != nil:
		want = forward(reason.NotCanonical)
	case hasToken:
		want.Semantics = Continue
		want.Start = strings.TrimPrefix(startKey, "/pods/")
	case exactRevision != 0:
		want.Semantics = Exact
	case lowestRevision == 0:
		want.Semantics = Any
	default:
		want.Semantics = NotOlderThan
		want.Revision = lowestRevision
	}
	if diff := cmp.Diff(want, decideList(o, LimitHonoured, ConsistentNone)); diff != "" {
		t.Errorf("%+v, limit at 0 honoured (-want +got):\n%s", o, diff)
	}
	if want.Semantics == Any {
		want.Limit = 0
	}
	if diff := cmp.Diff(want, decideList(o, LimitIgnored, ConsistentNone)); diff != "" {
		t.Errorf("%+v, limit at 0 ignored (-want +got):\n%s", o, diff)
	}
}
