// Command stamp gives an SBOM (CycloneDX, JSON) the time of a release, in place of that of the
// moment at which it was made, for which what makes it has no option. It reads standard input and
// writes standard output.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "stamp:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	flags := pflag.NewFlagSet("stamp", pflag.ContinueOnError)
	at := flags.String("time", "", "when it was made, as in RFC 3339")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *at == "" {
		return errors.New("--time is needed")
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	stamped, err := stamp(text, *at)
	if err != nil {
		return err
	}
	_, err = out.Write(stamped)
	return err
}

// stamp returns the document with another time.
func stamp(document []byte, at string) ([]byte, error) {
	var bom struct {
		Metadata struct {
			Timestamp string `json:"timestamp"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(document, &bom); err != nil {
		return nil, fmt.Errorf("the SBOM cannot be read: %w", err)
	}
	if bom.Metadata.Timestamp == "" {
		return nil, errors.New("the SBOM does not say when it was made")
	}
	const key = `"timestamp": "`
	return bytes.Replace(document, []byte(key+bom.Metadata.Timestamp+`"`), []byte(key+at+`"`), 1), nil
}
