package body

import (
	"bytes"
	"regexp"
	"strconv"
	"time"
)

var (
	// cells of a row of a Table, up to a bracket in one of them.
	cells = regexp.MustCompile(`"cells":\[[^\]]*\]`)
	// age is a cell with an age and nothing else, as
	// k8s.io/apimachinery/pkg/util/duration.HumanDuration writes it, and agePart one of its
	// numbers.
	age     = regexp.MustCompile(`"(\d+[smhdy])+"`)
	agePart = regexp.MustCompile(`(\d+)([smhdy])`)
)

var ageUnits = map[string]time.Duration{
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "y": 365 * 24 * time.Hour,
}

// WithAgesOf returns a Table with each age as another one of the same rows has it, where both can
// be right of two answers that were made within a time. All else stays, and so do all ages of what
// is no such Table.
func WithAgesOf(table, other []byte, within time.Duration) []byte {
	from, to := ages(table), ages(other)
	if len(from) != len(to) {
		return table
	}
	var out bytes.Buffer
	at := 0
	for i := range from {
		mine, others := table[from[i][0]:from[i][1]], other[to[i][0]:to[i][1]]
		out.Write(table[at:from[i][0]])
		if mayBeOne(string(mine), string(others), within) {
			mine = others
		}
		out.Write(mine)
		at = from[i][1]
	}
	out.Write(table[at:])
	return out.Bytes()
}

// ages returns where in a Table in JSON ages begin and end.
func ages(table []byte) (all [][]int) {
	if !bytes.HasPrefix(table, []byte(`{"kind":"Table",`)) {
		return nil
	}
	for _, row := range cells.FindAllIndex(table, -1) {
		for _, found := range age.FindAllIndex(table[row[0]:row[1]], -1) {
			all = append(all, []int{row[0] + found[0], row[0] + found[1]})
		}
	}
	return all
}

// mayBeOne reports whether two ages can be those of one object, taken within a time. Each is
// rounded down to a unit that is not greater than the last one that it has.
func mayBeOne(a, b string, within time.Duration) bool {
	ageA, unitA := ageOf(a)
	ageB, unitB := ageOf(b)
	return (ageA - ageB).Abs() < within+max(unitA, unitB)
}

// ageOf returns an age, and its last unit.
func ageOf(text string) (sum, last time.Duration) {
	for _, part := range agePart.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(part[1]) // of digits it is
		last = ageUnits[part[2]]
		sum += time.Duration(n) * last
	}
	return sum, last
}
