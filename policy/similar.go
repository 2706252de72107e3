package policy

import "strings"

// Similar returns which of names was probably meant by an unknown name: its plural, the same name in
// other upper and lower case, a name with one or two other letters, or with two letters swapped. It
// is empty if none is similar.
func Similar(name string, names []string) string {
	lower := strings.ToLower(name)
	best, least := "", max(1, min(2, len(name)/4))+1
	for _, candidate := range names {
		switch candidate {
		case lower, lower + "s", lower + "es", strings.TrimSuffix(lower, "y") + "ies":
			return candidate
		}
		to := strings.ToLower(candidate)
		if d := min(distance(lower, to), distance(lower+"s", to)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance is how many letters have to be put in, left out, changed or swapped with their neighbour
// to make one word of another (Damerau, Levenshtein).
func distance(a, b string) int {
	var last []int // two rows up
	before := make([]int, len(b)+1)
	for j := range before {
		before[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := before[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, row[j]+1, before[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], last[j-1]+1)
			}
		}
		last, before = before, row
	}
	return before[len(b)]
}
