package harness

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Main(m, Options{SetUp: func(s *Suite) error {
		dir, err := s.Dir() // for logs of stand-ins that fail, which they are meant to
		if err != nil {
			return err
		}
		return os.Setenv("TMPDIR", dir)
	}})
}
