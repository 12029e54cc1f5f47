package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// holder is what the lock file says of the process that has it.
type holder struct {
	PID   int    `json:"pid"`
	Host  string `json:"host"`
	Since string `json:"since"`
}

// errHeld says that another process has the lock.
var errHeld = errors.New("held by another process")

// lockDir takes the directory's lock, which ends with the process. The error names
// who holds it.
func lockDir(dir string, now time.Time) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lockFileNow(f); err != nil {
		defer f.Close()
		if !errors.Is(err, errHeld) {
			return nil, fmt.Errorf("cannot lock %s: %w", dir, err)
		}
		var h holder
		raw, _ := io.ReadAll(f)
		if json.Unmarshal(raw, &h) != nil {
			return nil, fmt.Errorf("%s is %w by another process", dir, ErrLocked)
		}
		return nil, fmt.Errorf("%s is %w by process %d on %s since %s: wait for it or stop it", dir, ErrLocked, h.PID, h.Host, h.Since)
	}
	host, _ := os.Hostname()
	raw, _ := json.Marshal(holder{os.Getpid(), host, stamp(now)}) // plain strings marshal
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt(raw, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
