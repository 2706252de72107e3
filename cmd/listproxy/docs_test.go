package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/test/expect"
)

// page is a documentation page of this repository.
type page struct {
	path, text string
	// isRecord marks the changelog and the results, which may mention flags and tests that are gone.
	isRecord bool
}

// minMatches is the least number of things that a test must find in the pages. A pattern that finds fewer is wrong.
const minMatches = 10

// expectMatches fails the test if it has found too few things in the pages.
func expectMatches(t *testing.T, things string, found int) {
	t.Helper()
	if found < minMatches {
		t.Errorf("got %d %s in the pages, want at least %d: is the pattern wrong?", found, things, minMatches)
	}
}

// readPages returns all documentation pages.
func readPages(t *testing.T) (pages []page) {
	t.Helper()
	for _, pattern := range []string{
		"*.md", "docs/*.md", "docs/results/*.md", "docs/decisions/*.md", ".github/*.md", "test/*.md", "docs/rbac.yaml",
		"charts/listproxy/*.md", "charts/listproxy/templates/NOTES.txt",
	} {
		files, err := filepath.Glob(filepath.Join("../..", pattern))
		expect.NoError(t, err)
		for _, path := range files {
			text, err := os.ReadFile(path) // #nosec G304 -- of this repository
			expect.NoError(t, err)
			isRecord := filepath.Base(path) == "CHANGELOG.md" || strings.Contains(path, "results")
			pages = append(pages, page{path: path, text: string(text), isRecord: isRecord})
		}
	}
	return pages
}

// commands returns cmd and all its subcommands.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, commands(sub)...)
	}
	return all
}

// foreignFlags are the flags of other programs that pages mention.
var foreignFlags = map[string][]string{
	"bin/bench": {"before"},
	"cobra":     {"help", "version"},
	"cosign":    {"certificate"},
	"docker":    {"build-arg"},
	"helm":      {"take-ownership"},
	"kube-apiserver": {
		"etcd-servers-overrides", "requestheader-client-ca-file", "requestheader-username-headers", "tracing-config-file",
		"watch-cache-sizes",
	},
	"kubectl": {"as", "force-conflicts", "watch"},
}

// TestMentionedFlags: every flag that a page mentions is one of listproxy's (or its subcommands'), or one of foreignFlags.
// Records may mention flags that are gone.
func TestMentionedFlags(t *testing.T) {
	known := map[string]bool{}
	for _, names := range foreignFlags {
		for _, name := range names {
			known[name] = true
		}
	}
	for _, cmd := range commands(newCommand()) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
	}
	expectKnown(t, "`--([a-z][a-z-]*[a-z])", known)
}

// expectKnown fails the test for each name in the pages that known lacks, except in records. pattern finds the names, as its
// first group.
func expectKnown(t *testing.T, pattern string, known map[string]bool) {
	t.Helper()
	mention := regexp.MustCompile(pattern)
	mentions := 0
	for _, p := range readPages(t) {
		for _, match := range mention.FindAllStringSubmatch(p.text, -1) {
			mentions++
			if name := match[1]; !known[name] && !p.isRecord {
				t.Errorf("%s mentions %s, which does not exist", p.path, name)
			}
		}
	}
	expectMatches(t, "mentions", mentions)
}

// TestMentionedTests: every test that a page names exists. Records may name tests that are gone.
func TestMentionedTests(t *testing.T) {
	known := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	expect.NoError(t, filepath.WalkDir("../..", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		source, err := os.ReadFile(file) // #nosec G304 G122 -- of this repository
		if err != nil {
			return err
		}
		for _, match := range function.FindAllSubmatch(source, -1) {
			known[string(match[1])] = true
		}
		return nil
	}))
	expectKnown(t, "`((?:Test|Fuzz)[A-Z]\\w+)`", known)
}

// TestLinksInPages: every link to a file of this repository leads to an existing file and, if it has an anchor, to a heading of
// this file.
func TestLinksInPages(t *testing.T) {
	codeBlock := regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	pages := readPages(t)
	anchors := map[string]bool{} // by path#anchor
	for i, p := range pages {
		pages[i].text = codeBlock.ReplaceAllString(p.text, "")
		for _, anchor := range anchorsOf(pages[i].text) {
			anchors[p.path+"#"+anchor] = true
		}
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	brokenLink := regexp.MustCompile(`\]\n *\([^)\s]+\)`)
	for _, p := range pages {
		if found := brokenLink.FindString(p.text); found != "" {
			t.Errorf("%s has %q, which is not a link: its parts are on two lines", p.path, found)
		}
		for _, match := range link.FindAllStringSubmatch(p.text, -1) {
			file, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := p.path
			if file != "" {
				target = filepath.Join(filepath.Dir(p.path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", p.path, match[1])
			} else if anchor != "" && filepath.Ext(target) == ".md" && !anchors[target+"#"+anchor] {
				t.Errorf("%s links to %s, and there is no such heading", p.path, match[1])
			}
		}
	}
}

// anchorsOf returns the anchors of a page: those of its headings, as GitHub makes them, and those of <a name>.
func anchorsOf(text string) (anchors []string) {
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	named := regexp.MustCompile(`<a name="?(\S+?)"?></a>`)
	punctuation := regexp.MustCompile(`[^\pL\pN _-]`)
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		words := strings.ToLower(punctuation.ReplaceAllString(match[1], ""))
		anchors = append(anchors, strings.ReplaceAll(words, " ", "-"))
	}
	for _, match := range named.FindAllStringSubmatch(text, -1) {
		anchors = append(anchors, match[1])
	}
	return anchors
}

// TestDecisions: each page in docs/decisions has its four parts, and at most 250 words.
func TestDecisions(t *testing.T) {
	const maxWords = 250
	count := 0
	for _, p := range readPages(t) {
		if filepath.Base(filepath.Dir(p.path)) != "decisions" {
			continue
		}
		count++
		t.Run(filepath.Base(p.path), func(t *testing.T) {
			expect.Says(t, p.text, "**Context.**", "**Decision.**", "**Measured.**", "**What would change our mind.**")
			if words := len(strings.Fields(p.text)); words > maxWords {
				t.Errorf("got %d words, want at most %d", words, maxWords)
			}
		})
	}
	expectMatches(t, "decisions", count)
}

// TestCommandsInPages: listproxy accepts each "listproxy ..." command line that a page shows, and the Makefile has the target
// of each "make TARGET". (TestReadmeWalk in test/e2e/operators runs the command lines of the README's trial.)
func TestCommandsInPages(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	expect.NoError(t, err)
	listproxyLines, makeLines := 0, 0
	for _, p := range readPages(t) {
		for _, c := range commandLinesOf(p) {
			switch {
			case c.program == "make":
				makeLines++
				if !strings.Contains(string(makefile), "\n"+c.args[0]+":") {
					t.Errorf("%s has make %s, and there is no such target", p.path, c.args[0])
				}
			case c.args[0] != "is": // "listproxy is ..." begins a sentence
				listproxyLines++
				if err := checkCommandLine(c.args); err != nil {
					t.Errorf("%s has listproxy %q, which is refused: %v", p.path, c.args, err)
				}
			}
		}
	}
	expectMatches(t, "command lines of listproxy", listproxyLines)
	expectMatches(t, "command lines of make", makeLines)
}

// commandLine is a command line of listproxy or make.
type commandLine struct {
	program string
	args    []string
}

// commandLinesOf returns the command lines of listproxy and make that a page shows.
func commandLinesOf(p page) (found []commandLine) {
	// A command line begins a line of the page. "$ ", "(umask 077; ", a command with a pipe, or bin/ may stand before it.
	pattern := regexp.MustCompile(
		`(?m)^ *(?:\$ )?\(?(?:umask 077; *)?(?:[^|\n]*\| *)?(?:bin/)?(listproxy|make) +([a-z-][^\n]*)$`)
	templateValue := regexp.MustCompile(`\{\{.*?\}\}`)
	code := strings.ReplaceAll(codeOf(p), "\\\n", " ")
	for _, match := range pattern.FindAllStringSubmatch(code, -1) {
		program, line := match[1], match[2]
		for _, end := range []string{" #", " > ", " | "} {
			line, _, _ = strings.Cut(line, end)
		}
		line = strings.TrimRight(line, ")& ")
		found = append(found, commandLine{program: program, args: splitWords(templateValue.ReplaceAllString(line, "x"))})
	}
	return found
}

// codeOf returns the code blocks of a Markdown page, and the whole text of any other page.
func codeOf(p page) string {
	if filepath.Ext(p.path) != ".md" {
		return p.text
	}
	codeBlock := regexp.MustCompile("(?s)\n```[a-z]*\n(.*?)\n```")
	var code strings.Builder
	for _, match := range codeBlock.FindAllStringSubmatch(p.text, -1) {
		code.WriteString(match[1] + "\n")
	}
	return code.String()
}

// checkCommandLine returns an error if listproxy refuses the arguments, without running the command.
func checkCommandLine(args []string) error {
	cmd, rest, err := newCommand().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// splitWords splits a command line at spaces. A whole word may stand in single quotes; other quoting is not understood.
func splitWords(line string) []string {
	words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1)
	for i := range words {
		words[i] = strings.Trim(words[i], "'")
	}
	return words
}

// TestDocumentedOutput: each listproxy command in docs/policy.md prints what the page shows below it.
func TestDocumentedOutput(t *testing.T) {
	t.Chdir("../..")
	text, err := os.ReadFile("docs/policy.md")
	expect.NoError(t, err)
	console := regexp.MustCompile("(?ms)^```console\n\\$ listproxy ([^\n]*)\n(.*?)^```$")
	blocks := console.FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatal("docs/policy.md has no command: is the pattern wrong?")
	}
	for _, block := range blocks {
		line, want := block[1], block[2]
		t.Run(line, func(t *testing.T) {
			got, err := execute(t, splitWords(line)...)
			expect.NoError(t, err)
			expect.Same(t, want, got)
		})
	}
}
