package policy

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/sharding"
)

// shardRange matches one range of a shardSelector (KEP-5866), as clients write it:
//
//	shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')
//
// The range has the first number, but not the second. The second may be 2^64, one more than the largest hash. kube-apiserver
// parses CEL, which allows other spellings of the same range. Requests with another spelling are forwarded.
var shardRange = regexp.MustCompile(
	`^ *shardRange\((object\.metadata\.(?:uid|namespace)), *'(0x[0-9a-f]{16})', *'(0x[0-9a-f]{16}|0x10000000000000000)'\) *$`)

// parseShards parses a shardSelector: ranges of the hash of one field, joined with ||. If ok is false, the request must be
// forwarded.
func parseShards(raw string) (selector sharding.Selector, ok bool) {
	if len(raw) > maxSelectorLength {
		return nil, false
	}
	var ranges []sharding.ShardRangeRequirement
	for text := range strings.SplitSeq(raw, "||") {
		groups := shardRange.FindStringSubmatch(text)
		if groups == nil || len(ranges) == maxRequirements {
			return nil, false
		}
		parsed := sharding.ShardRangeRequirement{Key: groups[1], Start: groups[2], End: groups[3]}
		isEmpty := !sharding.HexLess(parsed.Start, parsed.End)
		ranges = append(ranges, parsed)
		if isEmpty || parsed.Key != ranges[0].Key { // all ranges must be of the same field
			return nil, false
		}
	}
	return sharding.NewSelector(ranges...), true
}
