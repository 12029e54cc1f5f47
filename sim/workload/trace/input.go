package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"
)

// InputError is a fault of an input file: where it lies and, in the reference's
// own words (spec workload 4), what it is.
type InputError struct {
	File string
	Line int    // from 1, blank lines counted; 0: the file as a whole
	Msg  string // literal
	Err  error  // the cause, nil if Msg says it all
}

func (e *InputError) Error() string {
	s := e.File
	if e.Line > 0 {
		s += ":" + strconv.Itoa(e.Line)
	}
	s += ": " + e.Msg
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *InputError) Unwrap() error { return e.Err }

// lines reads the lines of one file, plain or gzip (by the extension .gz), in flat
// memory and digests its raw bytes on the way.
type lines struct {
	path string
	file io.Closer
	raw  io.Reader // the file, feeding Write
	sum  hash.Hash
	also io.Writer // gets the file's bytes too, unless nil
	r    *bufio.Reader
	long []byte // a line longer than the buffer of r
	text []byte // the present line without its line feed, until the next call of next
	n    int    // its number, from 1
	err  error
	size int64 // of the file
}

const readBuffer = 256 << 10

// maxLine is the longest line that is read, unpacked: a small .gz may hold one of any
// length.
const maxLine = 128 << 20

var errLongLine = fmt.Errorf("a line of more than %d MiB", maxLine>>20)

// openLines opens path, or what stands in for it. what names the file in the message when that fails.
func (o LoadOptions) openLines(path, what string) (*lines, error) {
	if o.content != nil {
		return newLines(path, io.NopCloser(strings.NewReader(*o.content)), int64(len(*o.content)))
	}
	var size int64
	f, err := os.Open(path)
	if err == nil {
		if st, e := f.Stat(); e == nil && st.IsDir() {
			f.Close()
			err = errors.New("is a directory")
		} else if e == nil {
			size = st.Size()
		}
	}
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err // the message has the path
		}
		return nil, &InputError{File: path, Msg: "failed to open " + what + path, Err: err}
	}
	return newLines(path, f, size)
}

// newLines reads from f, which has so many bytes, as far as is known.
func newLines(path string, f io.ReadCloser, size int64) (*lines, error) {
	l := &lines{path: path, file: f, sum: sha256.New(), size: size}
	l.raw = io.TeeReader(f, l)
	var src io.Reader = l.raw
	buffer := readBuffer
	if size > 0 {
		buffer = int(min(size+1, readBuffer)) // of a small file not the whole buffer is needed
	}
	if filepath.Ext(path) == ".gz" {
		z, err := gzip.NewReader(bufio.NewReaderSize(l.raw, buffer))
		if err != nil {
			f.Close()
			return nil, &InputError{File: path, Line: 1, Msg: fmt.Sprintf("failed to read %s:1", path), Err: err}
		}
		src, buffer = z, readBuffer
	}
	l.r = bufio.NewReaderSize(src, buffer)
	return l, nil
}

// Write digests bytes of the file.
func (l *lines) Write(raw []byte) (int, error) {
	if l.also != nil {
		l.also.Write(raw)
	}
	return l.sum.Write(raw)
}

// ids is about how many hash ids a mooncake file has: ten bytes each, or two and a half
// if they are compressed.
func (l *lines) ids() int64 {
	if filepath.Ext(l.path) == ".gz" {
		return l.size * 2 / 5
	}
	return l.size / 10
}

// next moves to the next line that is not blank; false at the end or on an error.
func (l *lines) next() bool {
	for l.err == nil {
		text, err := l.r.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			l.long = append(l.long[:0], text...)
			for err == bufio.ErrBufferFull {
				if len(l.long) > maxLine {
					err = errLongLine
					break
				}
				text, err = l.r.ReadSlice('\n')
				l.long = append(l.long, text...)
			}
			text = l.long
		}
		if err != nil && err != io.EOF {
			l.n++
			l.err = &InputError{File: l.path, Line: l.n, Msg: fmt.Sprintf("failed to read line %d from %s", l.n, l.path), Err: err}
			return false
		}
		if len(text) == 0 {
			return false
		}
		l.n++
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if !utf8.Valid(text) {
			l.err = &InputError{File: l.path, Line: l.n, Msg: fmt.Sprintf("failed to read line %d from %s", l.n, l.path), Err: errors.New("invalid UTF-8")}
			return false
		}
		l.text = bytes.TrimSuffix(text, []byte("\n"))
		return true
	}
	return false
}

// fail makes an error at the present line.
func (l *lines) fail(cause error, format string, args ...any) error {
	return l.spot().fail(cause, format, args...)
}

func (l *lines) spot() spot { return spot{l.path, l.n} }

// spot is a line of a file.
type spot struct {
	path string
	line int
}

func (s spot) fail(cause error, format string, args ...any) error {
	return &InputError{File: s.path, Line: s.line, Msg: fmt.Sprintf(format, args...), Err: cause}
}

// close ends the reading; digest is the SHA-256 of the whole file.
func (l *lines) close() (digest string, err error) {
	defer l.file.Close()
	if l.err != nil {
		return "", l.err
	}
	if _, err := io.Copy(io.Discard, l.raw); err != nil {
		return "", &InputError{File: l.path, Msg: "failed to read", Err: err}
	}
	return hex.EncodeToString(l.sum.Sum(nil)), nil
}

// joinDigests returns the digest of one file, or one over those of several.
func joinDigests(digests []string) string {
	if len(digests) == 1 {
		return digests[0]
	}
	sum := sha256.New()
	for _, d := range digests {
		io.WriteString(sum, d)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
