package policy

import "strconv"

// parseDecimal reads a number in its one canonical spelling: decimal digits, no
// sign, no leading zeros, no larger than the largest int64.
func parseDecimal(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return n, err == nil && (s == "0" || s[0] != '0')
}
