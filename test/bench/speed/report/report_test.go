package report

import (
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

func TestReplaceSection(t *testing.T) {
	const begin, end = "<!-- begin: make bench writes this: lists -->", "<!-- end: lists -->"
	for _, tc := range []struct{ name, document, want string }{
		{"a new section goes to the end", "# Title\n", "# Title\n\n" + begin + "\n\nnew\n\n" + end + "\n"},
		{"an old one is replaced where it is", "a\n" + begin + "\nold\n" + end + "\nb\n", "a\n" + begin + "\n\nnew\n\n" + end + "\nb\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := replaceSection(tc.document, "lists", "new\n")
			expect.NoError(t, err)
			expect.Same(t, tc.want, got)
		})
	}
	if _, err := replaceSection(begin, "lists", "new"); err == nil {
		t.Error("a section without an end was replaced")
	}
}

func TestTable(t *testing.T) {
	table := Table{Head: []string{"pods", "CPU"}, rows: [][]string{{"all", "1.25×"}}}
	want := "| pods |   CPU |\n| ---- | ----: |\n| all  | 1.25× |\n"
	expect.Same(t, want, table.String())
}
